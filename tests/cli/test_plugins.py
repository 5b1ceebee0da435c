"""``seu-bench check-plugin`` runs the contract on a stranger's plugin and says what failed."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import Answer, Command, write_package

#: A searcher that draws outside its own randomness and keeps in no state what it drew, one that divides by zero, and a
#: creator in whose contract nothing is wrong.
CARELESS = """
import random

from seu_bench import hookimpl
from seu_bench_kit import SearcherFactory
from seu_bench_random import RandomOptions
from seu_bench_random.searcher import RandomSearch


class Careless(RandomSearch):
    def __init__(self, options, task):
        super().__init__(options, task)
        self.found = self.space.random_genotype()

    def result(self):
        return self.found


class Dividing(RandomSearch):
    def result(self):
        print("noise")
        return 1 / 0


@hookimpl
def register_searchers(register):
    register("careless", SearcherFactory("draws where it should not", options=RandomOptions, build=Careless))
    register("dividing", SearcherFactory("divides by zero", options=RandomOptions, build="careless:Dividing"))
"""


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Answer]:
    """Run ``check-plugin`` where the careless plugin is installed, in a process of its own: pytest runs inside it."""
    folder = tmp_path_factory.mktemp("careless")
    write_package(folder / "site", "a-stranger", {"careless_plugin": "careless"}, {"careless": CARELESS})
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    # What the user has set for tests of his own, and files of them, must not matter.
    environment = os.environ | {"PYTHONPATH": str(folder / "site"), "PYTEST_ADDOPTS": "-x --no-such-option"}

    def run(*words: str) -> Answer:
        done = subprocess.run(
            [sys.executable, "-m", "seu_bench", "check-plugin", *words],
            capture_output=True,
            text=True,
            check=False,
            cwd=elsewhere,
            env=environment,
        )
        assert list(elsewhere.iterdir()) == []
        return Answer(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="module")
def checked(stranger: Callable[..., Answer]) -> Answer:
    """All checks of everything that the plugin offers."""
    return stranger("careless_plugin")


@pytest.mark.long
def test_says_what_failed(checked: Answer) -> None:
    """Each failed check comes with a sentence that says what is wrong and what to do; the others are ok."""
    assert (checked.status, checked.err) == (1, "")
    assert checked.out.startswith("searcher 'careless' of package a-stranger\n")
    careless, _, dividing = checked.out.partition("searcher 'dividing' of package a-stranger\n")
    assert re.search(r"FAILED +depends_on_the_seed_alone .*\n +the stage drew from the global generators", careless)
    assert re.search(r"FAILED +resumes .*\n +stopped after epoch 0 of 0 and resumed, it gave Genotype", careless)
    assert re.search(r"ok +keeps_its_budget +\d+\.\d s\n", careless)
    assert "ok " not in dividing and "noise" not in dividing
    assert "Traceback" not in checked.out and "error.txt" not in checked.out


@pytest.mark.long
def test_some_checks_as_json(stranger: Callable[..., Answer]) -> None:
    """``-k`` chooses; the document has what the text has, and the traceback."""
    answer = stranger("dividing", "-k", "seed or resumes", "--format", "json")
    assert (answer.status, answer.err) == (1, "")
    document = json.loads(answer.out)
    (subject,) = document["subjects"]
    assert (subject["kind"], subject["name"], subject["package"]) == ("searcher", "dividing", "a-stranger")
    checks = subject["checks"]
    assert [check["name"] for check in checks] == ["depends_on_the_seed_alone", "resumes"]
    assert {check["outcome"] for check in checks} == {"failed"} and all(check["seconds"] >= 0 for check in checks)
    assert (document["passed"], document["failed"], document["skipped"]) == (0, 2, 0)
    raised = checks[0]["raised"]
    assert (raised["function"], raised["code"]) == ("Dividing.result", "return 1 / 0")
    assert Path(raised["file"]).read_text().splitlines()[raised["line"] - 1].strip() == raised["code"]
    assert "ZeroDivisionError: division by zero" in checks[0]["traceback"]
    assert "searcher 'dividing'" in checks[0]["message"]


@pytest.mark.long
def test_interrupted() -> None:
    """Ctrl-C ends the command, not the check that runs; no summary pretends that all were done."""
    code = (
        "import _thread, runpy, signal, sys, threading; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "sys.argv = sys.argv[1:]; from seu_bench.testing import checking; begin = checking.pytest.main\n"
        "def main(*given, **named):\n"
        "    threading.Timer(1, _thread.interrupt_main).start()\n"
        "    return begin(*given, **named)\n"
        "checking.pytest.main = main; runpy.run_module('seu_bench', run_name='__main__')"
    )
    command = [sys.executable, "-c", code, "seu-bench", "check-plugin", "ewc"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (130, "interrupted")
    assert "checks in" not in done.stdout


def test_option_that_does_not_fit(command: Command) -> None:
    """An assignment without a value, and an option that nothing of the name has, are refused before anything runs."""
    answer = command("check-plugin", "random", "-o", "edges")
    assert answer.status == 2 and "is not an assignment" in answer.err
    answer = command("check-plugin", "naive", "-o", "epoch=2")
    assert answer.status == 2 and "'epoch' is not an option (did you mean 'epochs'?)" in answer.err


def test_pattern_that_does_not_fit(command: Command) -> None:
    """One that matches no check is refused with the names, one that cannot be read with how to write it."""
    answer = command("check-plugin", "digits", "-k", "lerns")
    assert (answer.status, answer.out) == (2, "")
    assert "no check of 'digits' matches 'lerns'" in answer.err and "holds_what_it_describes" in answer.err
    answer = command("check-plugin", "digits", "-k", "a and")
    assert (answer.status, answer.out) == (2, "")
    assert answer.err.startswith("error: the pattern 'a and' cannot be read")
