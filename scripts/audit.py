"""Ask the advisory services about every pinned version, and print how many of them were really looked up.

pip-audit succeeds where nothing could be looked up: a package that the index does not know counts as without
vulnerability. Here that is a failure. Exit code: 0 all were looked up and none is known to be vulnerable, 1 some are, 2
not all were looked up.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

#: pip-audit's names of the services, asked in this order until one knows every package.
SERVICES = ("pypi", "osv")


def ask(service: str, pins: Path) -> tuple[list[dict[str, Any]], str]:
    """Ask a service about each pinned package; its answers, and the last complaint of pip-audit."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(pins), "--no-deps", "--disable-pip"]
    command += ["--vulnerability-service", service, "--format", "json", "--progress-spinner", "off", "--timeout", "15"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    complaint = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        return [], complaint
    return packages, complaint


def main() -> int:
    """Print the findings; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pins", nargs="?", type=Path, default=Path("requirements.lock"))
    pins: Path = parser.parse_args().pins
    total = sum("==" in line.partition("#")[0] for line in pins.read_text(encoding="utf-8").splitlines())
    known: dict[str, dict[str, Any]] = {}
    for service in SERVICES:
        packages, complaint = ask(service, pins)
        answered = {package["name"]: package for package in packages if "vulns" in package}
        print(f"{service}: {len(answered)} of {total} packages looked up")
        if not answered:
            reason = next((package["skip_reason"] for package in packages if "skip_reason" in package), complaint)
            print(f"  cannot be reached, or knows nothing: {reason[-300:]}")
        known |= answered
        if len(known) >= total:
            break
    faults = [(name, fault) for name, package in sorted(known.items()) for fault in package["vulns"]]
    for name, fault in faults:
        fixed = ", ".join(fault.get("fix_versions", ())) or "no version yet"
        print(f"{name} {known[name]['version']}: {fault['id']}, mended in {fixed}")
    if faults:
        return 1
    if len(known) < total:
        print(f"NOT AUDITED: {total - len(known)} of {total} packages. This says nothing about their safety; try again")
        print("where https://pypi.org or https://api.osv.dev can be reached.")
        return 2
    print(f"no known faults in {total} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
