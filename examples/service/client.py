"""Ask the service for the classes of pictures, and print them as ``seu-bench predict --format csv --top 1`` does.

    python client.py http://localhost:8000 new/*/*.png > answers.csv

Needs nothing but Python. Files that the service refuses are named on standard error, and the exit status is 1.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen


def main(service: str, files: list[str]) -> int:
    """Print a line for each picture."""
    lines, status = csv.writer(sys.stdout, lineterminator="\n"), 0
    lines.writerow(["file", "class_1", "probability_1"])
    for file in files:
        try:
            with urlopen(f"{service}/predict?top=1", data=Path(file).read_bytes()) as answer:
                best = json.load(answer)["top"][0]
        except HTTPError as refused:
            print(f"{file}: {json.load(refused)['detail']}", file=sys.stderr)
            status = 1
        else:
            lines.writerow([file, best["class"], round(best["probability"], 6)])
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
