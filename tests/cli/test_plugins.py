"""``seu-bench check-plugin`` runs the contract on a stranger's plugin and says what failed; ``list`` shows options."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest
from support.commands import Answer, Command, write_package

from seu_bench.plugin.registry import Registry
from seu_bench.testing.checking import subjects

#: A searcher that draws outside its own randomness and keeps in no state what it drew.
CARELESS = """
import random

from seu_bench import LazyFactory, hookimpl
from seu_bench_random import RandomOptions
from seu_bench_random.searcher import RandomSearch


class Careless(RandomSearch):
    def __init__(self, options, task):
        super().__init__(options, task)
        self.found = self.space.random_genotype()

    def result(self):
        return self.found


@hookimpl
def register_searchers(register):
    register("careless", LazyFactory("draws where it should not", options=RandomOptions, build=Careless))
"""


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Answer:
    """Output of the command for the careless plugin, in a process of its own: pytest runs inside it."""
    folder = tmp_path_factory.mktemp("careless")
    write_package(folder / "site", "a-stranger", {"careless_plugin": "careless"}, {"careless": CARELESS})
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "seu_bench.cli.main", "check-plugin", "careless_plugin"],
        capture_output=True,
        text=True,
        check=False,
        cwd=elsewhere,
        env=os.environ | {"PYTHONPATH": str(folder / "site")},
    )
    assert list(elsewhere.iterdir()) == []
    return Answer(done.returncode, done.stdout, done.stderr)


@pytest.mark.long
def test_says_what_failed(checked: Answer) -> None:
    """Each failed check comes with a sentence that says what is wrong and what to do; the others are ok."""
    assert (checked.status, checked.err) == (1, "")
    assert checked.out.startswith("searcher 'careless' of package a-stranger\n")
    assert re.search(r"FAILED +depends_on_the_seed_alone\n +the stage drew from the global generators", checked.out)
    assert re.search(r"FAILED +resumes\n +stopped after epoch 0 of 0 and resumed, it gave Genotype", checked.out)
    assert re.search(r"ok +keeps_its_budget\n", checked.out)
    assert "Traceback" not in checked.out


@pytest.mark.long
def test_counts_what_holds(checked: Answer) -> None:
    """The last line has both numbers, and they are those of the lines above."""
    outcomes = re.findall(r"^  (ok|FAILED) ", checked.out, re.MULTILINE)
    assert checked.out.splitlines()[-1] == f"{outcomes.count('ok')} of {len(outcomes)} checks passed"
    assert len(outcomes) == 11


def test_unknown_name(command: Command) -> None:
    """A name that nobody registered is refused with what there is."""
    answer = command("check-plugin", "randon")
    assert answer.status == 2
    assert "'randon' (did you mean 'random'?)" in answer.err and "zero_cost" in answer.err


def test_option_that_does_not_fit(command: Command) -> None:
    """An assignment without a value is refused before anything runs."""
    answer = command("check-plugin", "random", "-o", "edges")
    assert answer.status == 2 and "is not an assignment" in answer.err


def test_subjects_of_a_plugin() -> None:
    """A plugin's name stands for everything that it offers; a registered name for all kinds of that name."""
    registry = Registry()
    assert [str(each) for each in subjects(registry, "creators")] == [
        f"creator {name!r} of package seu-bench" for name in ("all_new", "frugal", "reuse_first")
    ]
    assert [each.kind for each in subjects(registry, "mdl")] == ["searcher", "creator"]


def test_list_shows_options(command: Command) -> None:
    """A kind is listed a line each; one name of it is shown with its options: type, default, help."""
    lines = command("list", "searchers").out.splitlines()
    assert len(lines) == len(Registry().searchers) + 1
    assert re.search(r"^  darts +seu-bench +differentiable search", "\n".join(lines), re.MULTILINE)
    assert lines[-1] == "seu-bench list searchers NAME shows one with its options"
    out = command("list", "searchers", "darts").out
    assert re.search(r"^ order +1 \| 2 +1 +order of the architecture's gradient", out, re.MULTILINE)
    assert re.search(r"^ epochs +int > 0 +as the protocol says +epochs of the stage *$", out, re.MULTILINE)
