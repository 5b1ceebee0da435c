"""Guides, pasted as they are into a shell in an empty folder; that from a folder to a model in use is pasted again."""

from __future__ import annotations

import csv
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import public_api

GUIDES = public_api.ROOT / "docs" / "guides"
PAGE, TEXTS = GUIDES / "from_folder_to_model.md", GUIDES / "text_embeddings.md"
COMPARE = GUIDES.parent / "tutorials" / "compare.md"
#: A block that is pasted: Python, or indented lines of a shell.
PASTED = re.compile(
    r"^```python\n(?P<python>.*?)^```$|(?P<shell>(?:^    [^\n]+\n)+)|^```text\n.*?^```$", re.DOTALL | re.MULTILINE
)
SHOWN = re.compile(r"^```text\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def script(page: Path) -> str:
    """A page's blocks as one script of a shell; what it has installed is there."""
    found = []
    for block in PASTED.finditer(page.read_text("utf-8")):
        if block["python"]:
            found.append(f"python - <<'END'\n{block['python']}END\n")
        elif block["shell"] and "pip install" not in block["shell"]:
            found.append(re.sub(r"^    ", "", block["shell"], flags=re.MULTILINE))
    return "\n".join(found)


def paste(folder: Path, page: Path = PAGE) -> tuple[str, str]:
    places = {"SEU_BENCH_DATA": str(folder / "decoded"), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script(page)],
        cwd=folder,
        env=os.environ | places | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout, done.stderr


@pytest.mark.long
def test_page_is_pasted_twice(tmp_path: Path) -> None:
    out, err = paste(tmp_path)
    leaderboard, service, costs = SHOWN.findall(PAGE.read_text("utf-8"))
    # The choice that the page makes is that of the leaderboard.
    rows = [re.findall(r"^ +[-○]+ (\w+) ", text, re.MULTILINE) for text in (leaderboard, out)]
    assert rows[0][0] == rows[1][0] == "slda" and sorted(rows[0]) == sorted(rows[1][: len(rows[0])])
    assert "MODEL=april.onnx" in service
    # Passes are those of any machine, and so are the sizes of files but for how numbers are written in their headers.
    passes = [re.findall(r"^[A-Za-z ]+? +([\d,]+) image passes", text, re.MULTILINE) for text in (costs, out)]
    assert len(passes[0]) == 3 and passes[0] == passes[1]
    sizes = [re.findall(r"^(\w+\.\w+) +([\d,]+) bytes", text, re.MULTILINE) for text in (costs, out)]
    for (name, shown), (found, size) in zip(*sizes, strict=True):
        assert name == found and int(size.replace(",", "")) == pytest.approx(int(shown.replace(",", "")), rel=0.05)
    pictures = list(tmp_path.glob("new/*/*.png"))
    assert f"{len(pictures)} of {len(pictures)} answers are those of april.csv" in out
    assert float(re.findall(r"accuracy ([\d.]+) % of (?:\d+) in folders", err)[0]) > 90
    with (tmp_path / "april.csv").open(newline="", encoding="utf-8") as lines:
        answers = list(csv.DictReader(lines))
    assert len(answers) == len(pictures) and {row["class_1"] for row in answers} >= {"six", "seven"}
    kept = {path: path.read_bytes() for path in tmp_path.rglob("runs/*/record.json")}
    again, _ = paste(tmp_path)
    assert {path: path.read_bytes() for path in tmp_path.rglob("runs/*/record.json")} == kept
    assert [line for line in again.splitlines() if "image passes" in line] == [
        line for line in out.splitlines() if "image passes" in line
    ]


@pytest.mark.long
def test_texts_are_learned(tmp_path: Path) -> None:
    """Far above chance, which is 10 %; what is shown is what is printed but for the release of SciPy."""
    out, _ = paste(tmp_path, TEXTS)
    (shown,) = SHOWN.findall(TEXTS.read_text("utf-8"))
    rows = [dict(re.findall(r" (\w+) +3 [*≈]? *([\d.]+) ± ", text)) for text in (shown, out)]
    assert sorted(rows[0]) == sorted(rows[1]) and len(rows[0]) == 7
    found = {name: float(accuracy) for name, accuracy in rows[1].items()}
    assert min(found["ranpac"], found["slda"]) > max(70, found["replay"], found["nearest_mean"])
    assert min(found.values()) == found["naive"] < found["linear"] < found["joint"]
    accuracy, tasks, later = re.findall(r"([\d.]+)% over (\d) tasks, ([\d.]+)% of the later texts", out)[0]
    assert tasks == "6" and min(float(accuracy), float(later)) > 70


@pytest.mark.long
def test_methods_are_compared(tmp_path: Path) -> None:
    """Ranks, marks and the verdict are those that the page explains and writes down; a report and a table are made."""
    out, _ = paste(tmp_path, COMPARE)
    board, differences = SHOWN.findall(COMPARE.read_text("utf-8"))
    rows = [re.findall(r"^ (?:.*\d|  ○) (\w+) † +5 ([*≈]?) ", text, re.MULTILINE) for text in (board, out)]
    assert rows[0] == rows[1] and len(rows[0]) == 5
    verdicts = [
        dict(re.findall(r"^(\w+) \(.*?(not significant|significant|in every seed)", text, re.MULTILINE))
        for text in (differences, out)
    ]
    assert verdicts[0] == verdicts[1]
    assert (verdicts[0]["acc"], verdicts[0]["training"]) == ("not significant", "in every seed")
    assert (tmp_path / "results" / "report.html").exists() and "EWC" in (tmp_path / "table.tex").read_text("utf-8")
