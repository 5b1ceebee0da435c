"""The command line without runs: listing, data sets, help; quick to start and easy on whoever reads its output."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.commands import Command

from seu_bench.cli.main import CORE
from seu_bench.plugin.registry import Registry

HEAVY = ("torch", "torchvision", "avalanche", "pandas", "rich", "numpy", "sklearn", "scipy", "matplotlib", "jinja2")
KINDS = [
    *("strategies", "backbones", "searchers", "creators", "benchmarks", "datasets", "metrics"),
    *("executors", "loggers", "commands"),
]


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["run", "--help"], ["list"], ["list", "--format", "json"], ["list", "benchmarks"]],
    ids=" ".join,
)
def test_starts_quickly(arguments: list[str]) -> None:
    """Help and listings wait for no library that takes seconds to import."""
    code = (
        "import sys, atexit; from seu_bench.cli.main import main; sys.argv = ['seu-bench', *sys.argv[1:]];"
        f"atexit.register(lambda: print('heavy:', [m for m in {HEAVY} if m in sys.modules], file=sys.stderr)); main()"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout
    assert done.stderr == "heavy: []\n"


def test_no_file_of_the_working_folder_takes_the_place_of_a_package(tmp_path: Path) -> None:
    """Also where Python is asked for the module, which puts that folder first."""
    (tmp_path / "click.py").write_text("raise SystemExit('of the working folder')")
    command = [sys.executable, "-m", "seu_bench", "list", "strategies", "naive"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_names_every_command(command: Command) -> None:
    """Every command and every option has a help text; importing the package takes no time."""
    answer = command("--help")
    for name, factory in CORE.items():
        sub = factory.build()
        assert f"\n  {name} " in answer.out and sub.help
        assert factory.summary == sub.get_short_help_str(100)
        for parameter in sub.params:
            record: dict[str, Any] = parameter.to_info_dict()
            if record["param_type_name"] == "option" and "--format" not in record["opts"]:
                assert record["help"], f"{name} {record['opts']}"
    heavy = (*HEAVY, "pydantic", "click")
    code = f"import sys, seu_bench; dir(seu_bench); print([m for m in sys.modules if m in {heavy}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("kind", KINDS)
def test_list_of_a_kind(command: Command, kind: str) -> None:
    """A list of objects with name, package and summary, in the order of names."""
    answer = command("list", kind, "--format", "json")
    rows = json.loads(answer.out)
    assert (answer.status, answer.err) == (0, "")
    table = Registry().kinds[kind]
    offered = [row for row in rows if "unavailable" not in row]
    assert [(row["name"], row["package"], row["summary"]) for row in offered] == [
        (entry.name, entry.package, entry.summary) for entry in table.values()
    ]
    assert all(row["package"] == "seu-bench" and row["summary"] for row in offered)
    assert [row["name"] for row in offered] == sorted(row["name"] for row in offered)
    assert {row["name"]: row["unavailable"] for row in rows if row not in offered} == {
        name: entry.factory.reason for name, entry in table.unavailable.items()
    }


def test_what_is_not_available(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names that cannot be used are listed with the reason, for readers and programs, and refused with it."""
    (tmp_path / "lacking.py").write_text(
        "from seu_bench import hookimpl\n"
        "from seu_bench.plugin import Unavailable\n"
        "@hookimpl\n"
        "def register_strategies(register):\n"
        "    register('far', Unavailable('needs a package that is not there'))\n"
    )
    monkeypatch.setenv("SEU_BENCH_PLUGINS", str(tmp_path / "lacking.py"))
    rows = json.loads(command("list", "--format", "json").out)
    (row,) = [row for row in rows if row["name"] == "far"]
    assert row["kind"] == "strategy"
    assert row["unavailable"] == "needs a package that is not there"
    (line,) = [line for line in command("list").out.splitlines() if line.split()[:1] == ["far"]]
    assert f"not available: {row['unavailable']}" in line
    answer = command("run", "--strategy", "far")
    assert answer.status == 2
    assert row["unavailable"] in answer.err
    answer = command("list", "strategies", "ewk")
    assert (answer.status, answer.out) == (2, "") and "did you mean 'ewc'?" in answer.err


#: Kinds whose options tests look at, one name of each, and a line of its table.
SHOWN = {
    ("searchers", "darts"): r"^ restore +best_valid \| last +best_valid +architecture taken",
    ("strategies", "packnet"): r"^ retrain_epochs +int > 0 +not set +epochs of retraining after pruning",
    ("strategies", "ewc"): r"^ epochs +int > 0 +as the protocol says ",
    ("benchmarks", "split_fashion"): r"^ smoke +never ranked",
    ("metrics", "acc"): r"^higher is better: True$",
}


@pytest.mark.parametrize("kind", KINDS)
def test_one_name_in_full(command: Command, kind: str) -> None:
    """With its options: type, range, default, and how they are given; also one that is not available."""
    table = Registry().kinds[kind]
    for name in (*list(table)[:2], *list(table.unavailable)[:1]):
        document = json.loads(command("list", kind, name, "--format", "json").out)
        assert (document["name"], document["kind"]) == (name, table.singular)
        shown = command("list", kind, name)
        assert shown.status == 0 and f"{table.singular} {name}" in shown.out
        for option in document.get("options", ()):
            assert option["help"] and option["type"] and option["name"] in shown.out
    for (_, name), line in ((it, SHOWN[it]) for it in SHOWN if it[0] == kind):
        assert re.search(line, command("list", kind, name).out, re.MULTILINE), name


def test_data_for_a_reader_and_a_program(command: Command, tmp_path: Path) -> None:
    """Every data set says where it is looked for and whether it is whole."""
    root = tmp_path / "root"
    rows = {row["name"]: row for row in json.loads(command("data", "--data-root", root, "--format", "json").out)}
    assert list(rows) == [*Registry().datasets]
    assert (rows["digits"]["status"], rows["digits"]["where"]) == ("embedded", None)
    assert {row["status"] for name, row in rows.items() if name != "digits"} == {"missing"}
    assert all(row["where"].startswith(str(root)) for name, row in rows.items() if name != "digits")
    text = command("data", "--data-root", root).out
    for name, row in rows.items():
        assert any(line.split()[:2] == [name, row["status"]] for line in text.splitlines())
    assert list(tmp_path.iterdir()) == []


def test_reader_that_leaves_early() -> None:
    """``seu-bench list | head -1`` ends without a complaint."""
    code = (
        "import sys; sys.argv = ['seu-bench', 'list', '--format', 'json']; from seu_bench.cli.main import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-u", "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert "Traceback" not in said
    assert "BrokenPipeError" not in said
