"""Pack the records of results folders into one ``records.jsonl`` each, or unpack them.

    python scripts/pack_records.py [--unpack] FOLDER...

Packing removes the runs' folders, and with them weights, checkpoints and models: only records are published.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from seu_bench.errors import ResultsError
from seu_bench.results.record import Record, record_path, runs_folder
from seu_bench.results.record_files import PACKED_NAME, packed_records, record_in
from seu_bench.utils.files import write_atomic
from seu_bench.utils.reading import list_folder, read_file


def pack_records(results: Path) -> Path:
    """Write all records of a folder to its ``records.jsonl``, by run id; nothing is changed if one cannot be read."""
    documents = _packed_documents(results)
    for folder in list_folder(runs_folder(results)):
        if (item := record_in(folder)) is not None:
            run_id = _required(item).run_id
            documents[run_id] = json.loads(read_file(folder / "record.json"))
    lines = [json.dumps(documents[run_id], ensure_ascii=False, separators=(",", ":")) for run_id in sorted(documents)]
    write_atomic(path := results / PACKED_NAME, "".join(f"{line}\n" for line in lines))
    return path


def unpack_records(results: Path) -> None:
    """Write each record of ``records.jsonl`` to a run's folder, unless it has one, and remove the file."""
    for run_id, document in _packed_documents(results).items():
        if not (place := record_path(results, run_id)).exists():
            write_atomic(place, json.dumps(document, indent=1, allow_nan=False) + "\n")
    (results / PACKED_NAME).unlink(missing_ok=True)


def _packed_documents(results: Path) -> dict[str, dict[str, Any]]:
    # Documents stay what they are: a record of an older version is not rewritten as one of this version.
    return {_required(item).run_id: json.loads(line) for line, item in packed_records(results)}


def _required(item: Record | ResultsError) -> Record:
    if isinstance(item, ResultsError):
        raise item
    return item


def main() -> None:
    """Pack or unpack each folder."""
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
