"""The wheel holds everything in the folders, and every plugin of ours is found as a stranger's would be."""

from __future__ import annotations

import configparser
import importlib
import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from seu_bench.plugin.methods import methods_in

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("seu_bench", "plugins", "benchmarks")
PLUGINS = ROOT / "plugins"


@pytest.fixture(scope="module")
def setup() -> configparser.ConfigParser:
    """The packaging as it is written."""
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def pairs(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line.strip()]
    return {name.strip(): value.strip() for name, _, value in (line.partition("=") for line in lines)}


def packages() -> dict[str, Path]:
    """Every folder that is a package, by the name that it is imported by."""
    found = {}
    for top in SOURCES:
        for path in (ROOT / top).rglob("__init__.py"):
            parts = list(path.parent.relative_to(ROOT).parts)
            if top == "plugins":
                parts = parts[1:]
            elif top == "benchmarks":
                parts[0] = "seu_bench_benchmarks"
            found[".".join(parts)] = path.parent
    return found


def test_lock_has_every_requirement(setup: configparser.ConfigParser) -> None:
    """At one version within the range that the package declares, and with the hashes of its files."""
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = re.findall(r"^(\S+)==(\S+)[^\n]*\\\n((?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", lock, re.MULTILINE)
    versions = {name: version for name, version, _ in pins}
    assert len(versions) == len(pins) == len(re.findall(r"^\S+==", lock, re.MULTILINE)) > 150
    extras = setup["options.extras_require"]
    lines = [setup["options"]["install_requires"], *(extras[name] for name in extras if name != "audit")]
    wanted = [line for line in "\n".join(lines).splitlines() if line and not line.startswith("#")]
    assert len(wanted) > 30
    for requirement in map(Requirement, wanted):
        assert requirement.specifier.contains(versions[canonicalize_name(requirement.name)]), requirement


def test_every_package_is_listed(setup: configparser.ConfigParser) -> None:
    """A package that is missing there would be silently absent from the wheel."""
    listed = setup["options"]["packages"].split()
    assert sorted(listed) == sorted(packages())
    assert {"seu_bench", "seu_bench_benchmarks", "seu_bench_methods", "seu_bench_seu"} <= set(listed)


def test_folders_of_packages(setup: configparser.ConfigParser) -> None:
    """Each top package is mapped to the folder that it lies in."""
    mapped = pairs(setup["options"]["package_dir"])
    found = packages()
    assert {name: ROOT / folder for name, folder in mapped.items()} == {
        name: found[name] for name in found if "." not in name
    }


def test_every_plugin_has_an_entry_point(setup: configparser.ConfigParser) -> None:
    """One each, in the group that strangers use, and each is installed here; packages of methods have theirs."""
    points = pairs(setup["options.entry_points"]["seu_bench"])
    plugins = {name for name in packages() if name.startswith("seu_bench_") and "." not in name}
    methods = {it.partition(".")[0] for it in pairs(setup["options.entry_points"]["seu_bench.methods"]).values()}
    ours = {value for value in points.values() if value.startswith("seu_bench.")}
    assert ours == {"seu_bench.cli.main", "seu_bench.sweeps.local"}  # core registers as everybody does
    assert sorted(set(points.values()) - ours) == sorted(
        plugins - methods - {"seu_bench_kit"}
    )  # which offers nothing by itself
    installed = {point.name: point.value for point in entry_points(group="seu_bench") if point.dist is not None}
    assert points.items() <= installed.items()
    assert pairs(setup["options.entry_points"]["console_scripts"]) == {"seu-bench": "seu_bench.cli.main:main"}


def test_every_method_has_an_entry_point(setup: configparser.ConfigParser) -> None:
    """By its own name."""
    files = [
        it
        for it in PLUGINS.glob("*/[!_]*.py")
        if it.parent.name in ("seu_bench_methods", "seu_bench_adapt") or it.stem == "method"
    ]
    modules = [importlib.import_module(f"{it.parent.name}.{it.stem}") for it in files]
    named = {method.name: f"{method.__module__}:{method.__name__}" for it in modules for method in methods_in(it)}
    assert pairs(setup["options.entry_points"]["seu_bench.methods"]) == named
    installed = {point.name: point.value for point in entry_points(group="seu_bench.methods")}
    assert named.items() <= installed.items()
