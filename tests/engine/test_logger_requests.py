"""How loggers are asked for: by name with options, refused before anything runs, and without secrets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import Command, Install
from support.logged import Keeping, logged_run

import seu_bench
from seu_bench.errors import OptionError, UnknownNameError


def test_nothing_is_logged_unasked(tiny: Path, tmp_path: Path, command: Command) -> None:
    """An ordinary run makes no log."""
    answer = command("run", "--strategy", "tiny", "--protocol", "smoke", "--limit", 8, "--results", tmp_path)
    assert answer.status == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


def test_refused_before_anything_runs(tiny: Path, tmp_path: Path, command: Command, install: Install) -> None:
    """An unknown logger, one that is not installed, options that do not fit, one that cannot be built."""
    plugin = """
from seu_bench import hookimpl
from seu_bench.plugin.registration import offered
from seu_bench.config.options import Options


class Broken:
    summary = "cannot be built"
    options = Options

    def build(self, options, folder):
        raise ImportError("libwhatever.so.3 is missing")


@hookimpl
def register_loggers(register):
    register("broken", Broken())
    register("absent", offered(Broken(), "absent", "no_such_module", "json"))
"""
    install("logging-stranger", {"logging_stranger": "logging_stranger"}, {"logging_stranger": plugin})

    def refused(*asked: object) -> str:
        answer = command("run", "--strategy", "tiny", "--protocol", "smoke", "--results", tmp_path / "none", *asked)
        assert (answer.status, answer.out) == (2, "")
        assert not (tmp_path / "none").exists()
        return answer.err

    assert "no logger is called 'tensorbord' (did you mean 'tensorboard'?)" in refused("--log", "tensorbord")
    said = refused("--log", "tensorboard,absent")
    assert "the logger 'absent' cannot be used: not installed: no_such_module\n" in said
    assert "hint: pip install 'seu-bench[absent]'" in said
    assert "logger 'broken' of package logging-stranger cannot be used: ImportError: libwhatever" in refused(
        "--log", "broken"
    )
    assert "'color' is not an option" in refused("--log", "tensorboard", "--log-option", "tensorboard.color=red")
    assert "is of no logger that was asked for" in refused("--log-option", "tensorboard.folder=x")
    assert "--log-option 'tensorboard.folder' is not an assignment" in refused(
        "--log", "tensorboard", "--log-option", "tensorboard.folder"
    )


def test_listed(command: Command) -> None:
    """``list loggers`` shows them, and each by its name with its options."""
    answer = command("list", "loggers")
    assert answer.status == 0 and all(name in answer.out for name in ("tensorboard", "wandb", "mlflow"))
    assert re.search(r"^ +mode .*offline", command("list", "loggers", "wandb").out, re.MULTILINE)


def test_from_python(tiny: Path, tmp_path: Path) -> None:
    """``seu_bench.run`` takes the same names and options."""
    seu_bench.run(
        "tiny",
        protocol="smoke",
        limit=8,
        results=tmp_path / "results",
        device="cpu",
        log=["tensorboard"],
        log_options={"tensorboard.folder": str(tmp_path / "events")},
    )
    assert list((tmp_path / "events").glob("*/*/events.out.tfevents.*"))
    assert not (tmp_path / "results" / "logs").exists()
    with pytest.raises(UnknownNameError):
        seu_bench.run("tiny", results=tmp_path, log=["nothing"])
    with pytest.raises(OptionError):
        seu_bench.run("tiny", results=tmp_path, log=["tensorboard"], log_options={"wandb.mode": "online"})


def test_looking_names_up_imports_none_of_them() -> None:
    """Neither the libraries nor torch are imported before a logger is asked for."""
    code = (
        "import sys; from seu_bench.plugin.registry import Registry; Registry().loggers; "
        "print([name for name in ('torch', 'tensorboard', 'mlflow', 'wandb') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("key", "value"),
    [("uri", "http://ann:secret@host"), ("uri", "postgresql://ann@host/db"), ("api_key", "1"), ("Password", "x")],
)
def test_secrets_are_refused(tiny: Path, tmp_path: Path, key: str, value: str) -> None:
    """Options are printed and stored, so that none of them may be a secret; the message does not hold it either."""
    with pytest.raises(OptionError, match="options are printed and stored") as refused:
        logged_run(tmp_path, ["keeping"], plugins={"keeping": Keeping()}, log_options={f"keeping.{key}": value})
    assert "secret@" not in str(refused.value) and "ann" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_secrets_are_masked_in_notices(tiny: Path, tmp_path: Path) -> None:
    """A library's message may hold the address that it was given by the environment."""

    def away() -> None:
        raise ConnectionError("no answer from https://ann:secret@host/api")

    _, witness = logged_run(tmp_path, ["keeping"], plugins={"keeping": Keeping({"begin": away})})
    assert len(witness.notices) == 1
    assert "https://***@host/api" in witness.notices[0] and "secret" not in witness.notices[0]
