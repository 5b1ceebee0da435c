"""Flags of ``sweep`` that executors bring."""

from __future__ import annotations

from pathlib import Path

from support.commands import Command, Install


def test_options_of_the_executor_by_name(command: Command, tmp_path: Path) -> None:
    """They are options of the executor as any other; one that it has not, or that is given twice, is refused."""
    asked = ("sweep", "--strategy", "naive", "--protocol", "smoke", "--results", tmp_path, "--dry-run")
    unknown = command(*asked, "--partition", "debug")
    assert (unknown.status, "'partition' is not an option" in unknown.err) == (2, True)
    twice = command(*asked, "--gpus", 1, "-o", "executor.gpus=2")
    assert (twice.status, "option 'executor.gpus' is given twice" in twice.err) == (2, True)


#: An executor that refuses everything and says what it was given. The flag ``--device`` is the command's own.
FLAGGED = """
from typing import Annotated

from seu_bench import hookimpl
from seu_bench.config.options import Options
from seu_bench.config.run import CommandLine
from seu_bench.errors import RequestError


class FlaggedOptions(Options):
    queue: Annotated[str, CommandLine(("--queue",), "NAME")] = "short"
    device: Annotated[str, CommandLine(("--device",))] = "none"


class Flagged:
    summary = "refuses"
    options = FlaggedOptions
    detaches = False

    def build(self, options, device, threads):
        raise RequestError(f"{options.queue}, {options.device}, {device}")


@hookimpl
def register_executors(register):
    register("flagged", Flagged())
"""


def test_flags_of_an_executor(command: Command, install: Install, tmp_path: Path) -> None:
    """They come with it; the command's own come first, and ``-o`` reaches every option."""
    unknown = command("sweep", "--queue", "long")
    assert (unknown.status, "--queue" in unknown.err) == (2, True)
    install("a-stranger", {"flagged": "flagged"}, {"flagged": FLAGGED})
    asked = ("sweep", "--strategy", "naive", "--protocol", "smoke", "--results", tmp_path, "--executor", "flagged")
    flag = command(*asked, "--queue", "long", "--device", "cpu")
    assert (flag.status, "long, none, cpu" in flag.err) == (2, True)
    option = command(*asked, "-o", "executor.queue=3", "-o", "executor.device=x")
    assert (option.status, "queue: must be text in quotes" in option.err) == (2, True)
    assert "--queue NAME" in command("sweep", "--help").out
