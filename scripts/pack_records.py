"""Pack the records of results folders into one ``records.jsonl`` each, or unpack them.

    python scripts/pack_records.py [--unpack] FOLDER...

Packing removes the runs' folders, and with them weights, checkpoints and models: only records are published.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from seu_bench.results.record_files import pack_records, unpack_records


def main() -> None:
    """Pack or unpack the folders of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--unpack", action="store_true", help="make runs' folders of records.jsonl")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    given = parser.parse_args()
    for folder in given.folders:
        if given.unpack:
            unpack_records(folder)
        else:
            print(pack_records(folder))
            shutil.rmtree(folder / "runs", ignore_errors=True)


if __name__ == "__main__":
    main()
