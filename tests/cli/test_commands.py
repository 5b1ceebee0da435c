"""Commands that plugins bring: found, shown with their package, run; broken ones are named and break nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from support.commands import Command, Install, write_package

from seu_bench.cli.main import CORE
from seu_bench.plugin.registry import Registry

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "my_seu_plugin" / "my_seu_plugin"
RECORDS = ROOT / "tests" / "support" / "sample_records"

#: The outer module: no torch, not even click.
OUTER = """
from seu_bench import hookimpl
from seu_bench.plugin.registration import LazyCommand


@hookimpl
def register_commands(register):
    register("count", LazyCommand("stranger_inner:count", "count records"))
"""

INNER = """
import click

from seu_bench.errors import ResultsError


@click.command()
@click.argument("number", type=int)
@click.option("--results", default="results", help="Folder of records.")
def count(number, results):
    \"\"\"Count records once more.\"\"\"
    if number == 0:
        raise ResultsError("nothing to count", where=results, remedy="count more")
    if number < 0:
        1 / 0
    if number > 9:
        raise SystemExit(3)
    click.echo(f"{number} in {results}")
"""


def offering(inner: str = INNER, outer: str = OUTER) -> tuple[str, Mapping[str, str], Mapping[str, str]]:
    return "a-stranger", {"counter": "stranger_outer"}, {"stranger_outer": outer, "stranger_inner": inner}


def test_command_of_a_stranger(command: Command, install: Install) -> None:
    """It is in the help with its package, has a help of its own, parses its arguments, and is listed."""
    install(*offering())
    out = command("--help").out
    own, _, others = out.partition("Commands of plugins:\n")
    assert re.search(r"\n  count +count records \(a-stranger\)\n", f"\n{others}")
    assert "count" not in own and all(f"\n  {name} " in own for name in CORE)
    shown = command("count", "--help")
    assert shown.status == 0 and "Count records once more." in shown.out and "--results" in shown.out
    assert command("count", "3", "--results", "here").out == "3 in here\n"
    entry = Registry().commands["count"]
    assert (entry.plugin, entry.package, entry.summary) == ("counter", "a-stranger", "count records")
    assert any(line.split() == ["count", "a-stranger", "count", "records"] for line in command("list").out.splitlines())


@pytest.mark.parametrize(
    ("inner", "said"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("", "AttributeError: module 'stranger_inner' has no attribute 'count'"),
        ("count = 7", "TypeError: stranger_inner:count is not a click command"),
    ],
)
def test_command_that_cannot_be_built(command: Command, install: Install, inner: str, said: str) -> None:
    """The help is whole, since it imports no command of a plugin; the command itself is refused."""
    install(*offering(inner))
    assert "count records (a-stranger)" in command("--help").out
    for arguments in (["count", "1"], ["count", "--help"]):
        answer = command(*arguments)
        assert answer.status == 2 and answer.out == ""
        assert f"the command 'count' of plugin 'counter' of package a-stranger failed: {said}" in answer.err


@pytest.mark.parametrize(
    ("outer", "said"),
    [
        ("1 / 0", "plugin 'counter' of package a-stranger cannot be used: ZeroDivisionError"),
        (
            OUTER.replace("    register", "    1 / 0\n    register"),
            "plugin 'counter' of package a-stranger failed in register_commands: ZeroDivision",
        ),
        (OUTER.replace('"count"', '"run"'), "the command 'run' is registered twice: by seu-bench and by a-stranger"),
        (OUTER.replace('"count"', '"a b"'), "registers the command 'a b', which is no plain name"),
    ],
)
def test_broken_plugin(command: Command, install: Install, outer: str, said: str) -> None:
    """Help and commands of core go on; whoever asks for a plugin's command is told what is broken."""
    install(*offering(outer=outer))
    answer = command("--help")
    assert answer.status == 0 and all(f"\n  {name} " in answer.out for name in CORE)
    assert said in " ".join(answer.out.partition("Commands of plugins:")[2].split())
    assert command("run", "--help").status == 0
    answer = command("count", "1")
    assert answer.status == 2 and said in answer.err
    assert said in Registry().faults["counter"].what


def test_example(command: Command, install: Install) -> None:
    """The command of the example package, as it stands."""
    folder = install("guide", {"mine": "my_seu_plugin"}, {})
    shutil.copytree(EXAMPLE, folder / "my_seu_plugin")
    assert "best print the best accuracy of all records (guide)" in " ".join(command("--help").out.split())
    assert re.fullmatch(r"split_digits-\S+: 0\.\d{3}\n", command("best", "--results", RECORDS).out)


@pytest.mark.parametrize(
    ("arguments", "imported"),
    [
        (["--help"], ["seu_bench_genotypes", "seu_bench_submissions", "stranger_outer"]),
        (["count", "1"], ["seu_bench_genotypes", "seu_bench_submissions", "stranger_inner", "stranger_outer"]),
        (["show", "-h"], []),
    ],
)
def test_imports_no_more_than_it_needs(tmp_path: Path, arguments: list[str], imported: list[str]) -> None:
    """Help imports a plugin's outer module, its command the inner one; a command of core imports none of them."""
    package, points, modules = offering()
    site = write_package(tmp_path / "site", package, points, modules)
    assert imported_by(arguments, ("stranger", "seu_bench_", "torch", "numpy"), PYTHONPATH=str(site)) == imported


def imported_by(arguments: Sequence[str], begins: tuple[str, ...], **environment: str) -> list[str]:
    """Modules, by the beginnings of their names, that a command imports in a process of its own."""
    code = (
        "import atexit, sys; from seu_bench.cli.main import main; sys.argv = ['seu-bench', *sys.argv[1:]];"
        f"names = lambda: sorted(m for m in sys.modules if m.startswith({begins}));"
        "atexit.register(lambda: print(*names(), file=sys.stderr)); main()"
    )
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stderr.split()
