"""Commands that are printed: a shell that they are pasted into gives back what was meant, and does nothing else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from seu_bench.cli.options import request_command
from seu_bench.config.commands import command
from seu_bench.config.options import format_option, parse_value
from seu_bench.config.run import Request
from seu_bench.sweeps.spec import parse_axes

HOSTILE = (
    "$(touch X)",
    "`touch X`",
    "; touch X;",
    'it\'s "quoted" $HOME \\',
    "two\nlines & touch X",
    "-o",
    "--help",
    "a  b",
    "#1",
    "~",
    "a,b",
    "",
)


@pytest.fixture
def pasted(tmp_path: Path) -> Any:
    """Runs a command in a shell whose ``seu-bench`` writes its arguments down, and returns them."""
    program = tmp_path / "bin" / "seu-bench"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "%s\\0" "$@"\n')
    program.chmod(0o755)
    place = tmp_path / "here"
    place.mkdir()

    def run(text: str) -> list[str]:
        environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
        done = subprocess.run(
            ["sh", "-c", text], cwd=place, env=environment, capture_output=True, text=True, check=True
        )
        assert list(place.iterdir()) == []
        return done.stdout.split("\0")[:-1]

    return run


@pytest.mark.parametrize("text", HOSTILE)
def test_a_shell_gives_back_every_part(pasted: Any, text: str) -> None:
    written = command("run", text, benchmark=text, seed=0, options={"key": text}, log=(text,), data_root=Path(text))
    first, argument, *flags = pasted(written)
    assert (first, argument) == ("run", text)
    given = dict(zip(flags[::2], flags[1::2], strict=True))
    key, _, value = given.pop("-o").partition("=")
    assert (key, parse_value(value)) == ("key", text) and parse_axes([f"key={value}"]) == {"key": [text]}
    assert given == {"--benchmark": text, "--seed": "0", "--log": text, "--data-root": str(Path(text))}


@pytest.mark.parametrize("text", HOSTILE[:-1])
def test_the_command_line_reads_the_same_request(pasted: Any, text: str) -> None:
    """Of fields of every type; values of options keep theirs."""
    options = {"text": text, "number": 0.1, "truth": True, "list": [1, [text]], "table": {"a b": text}, "digits": "3"}
    fields: dict[str, Any] = {
        "benchmark": text,
        "results": Path(text),
        "options": options,
        "max_seconds": 2.0,
        "feature_cache": 512,
    }
    asked = Request(seed=3, restart=True, keep_weights=False, **fields)
    found: list[Request] = []

    @request_command()
    def run(**given: Any) -> None:
        found.append(Request(**given))

    assert isinstance(run, click.Command)
    words = pasted(command("run", **{name: getattr(asked, name) for name in Request.model_fields}))
    run.main(words[1:], standalone_mode=False)
    assert found == [asked]


@pytest.mark.parametrize(
    "value", ["\x1b[31m", "\x7f", "a\u202eb", "x\ty", {"a": [{"b": "c"}]}, [], "null", "true", 1e-7]
)
def test_values_of_options_are_toml_on_one_line(value: object) -> None:
    text = format_option(value)
    assert parse_value(text) == value and text.isprintable()
