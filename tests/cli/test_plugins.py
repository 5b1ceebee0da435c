"""``seu-bench check-plugin`` runs the contract on a stranger's plugin and says what failed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable

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


@pytest.mark.long
def test_says_what_failed(stranger: Callable[..., Answer]) -> None:
    """Each failed check comes with a sentence that says what is wrong, or with the place in the plugin."""
    answer = stranger("careless_plugin")
    assert (answer.status, answer.err) == (1, ""), answer.err
    assert "Test_searcher_careless_0::test_depends_on_the_seed_alone FAILED" in answer.out
    assert "the stage drew from the global generators" in answer.out
    assert re.search(r"stopped after epoch 0 of 0 and resumed, it gave Genotype", answer.out)
    assert "Test_searcher_careless_0::test_keeps_its_budget PASSED" in answer.out
    answer = stranger("dividing", "-k", "seed or resumes")
    assert answer.status == 1 and re.search(r"careless\.py:\d+: in result\n +return 1 / 0", answer.out)
    assert " 2 failed" in answer.out and "passed" not in answer.out.splitlines()[-1]


@pytest.mark.long
def test_interrupted() -> None:
    """Ctrl-C ends the command, not the check that runs."""
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


def test_option_that_does_not_fit(command: Command) -> None:
    """An assignment without a value, and an option that nothing of the name has, are refused before anything runs."""
    answer = command("check-plugin", "random", "-o", "edges")
    assert answer.status == 2 and "is not an assignment" in answer.err
    answer = command("check-plugin", "naive", "-o", "epoch=2")
    assert answer.status == 2 and "'epoch' is not an option (did you mean 'epochs'?)" in answer.err


def test_pattern_that_does_not_fit(command: Command) -> None:
    """One that matches no check, or cannot be read, is refused with the names."""
    for pattern in ("lerns", "a and"):
        answer = command("check-plugin", "digits", "-k", pattern)
        assert answer.status == 2 and f"no check matches {pattern!r}" in answer.err
        assert "holds_what_it_describes" in answer.err
