"""``seu-bench check-plugin`` runs the contract on a stranger's plugin and says what failed; ``list`` shows options."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.commands import Answer, Command, write_package

from seu_bench.plugin.registry import Registry

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
def test_says_where(checked: Answer) -> None:
    """The line of the plugin's own code that an exception came through."""
    line = 1 + CARELESS.splitlines().index("        return 1 / 0")
    assert re.search(rf"\n +at \S+site/careless\.py:{line}, in Dividing\.result\n +return 1 / 0\n", checked.out)
    # What is broken at one place is told once.
    assert checked.out.count("in Dividing.result") < checked.out.count("searcher dividing: ")
    assert re.search(r"FAILED +keeps_its_budget .*\n +as uses_the_current_task_only\n", checked.out)


@pytest.mark.long
def test_counts_what_holds(checked: Answer) -> None:
    """The last lines have what failed, what to do, and numbers, which are those of the lines above."""
    outcomes = re.findall(r"^  (ok|FAILED|skipped) ", checked.out, re.MULTILINE)
    *_, advice, summary = checked.out.splitlines()
    failed, passed = outcomes.count("FAILED"), outcomes.count("ok")
    assert re.fullmatch(rf"{passed} passed, {failed} failed of {len(outcomes)} checks in \d.* s", summary)
    assert len(outcomes) == 22
    assert len(re.findall(r"^FAILED  searcher \w+: ", checked.out, re.MULTILINE)) == failed
    # It is installed as if from an index, so that its reader need not be its author.
    assert advice.startswith("hint: report it to the author of a-stranger with the output of: seu-bench check-plugin ")


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
def test_skipped_is_not_failed(command: Command) -> None:
    """A check that does not apply is counted apart, with its reason; the plugin is healthy."""
    answer = command("check-plugin", "naive", "-k", "cached_features or learns and not scenarios")
    assert (answer.status, answer.err) == (0, "")
    assert re.search(r"skipped +cached_features_change_nothing .*\n +this strategy's model asks for no out", answer.out)
    assert re.search(r"\n1 passed, 1 skipped of 2 checks in ", answer.out)


@pytest.mark.long
def test_on_a_terminal() -> None:
    """What runs is shown, and its result is written over it; nothing else is drawn between the lines."""
    leader, follower = os.openpty()
    command = [sys.executable, "-m", "seu_bench", "check-plugin", "digits", "-k", "describes_itself or missing"]
    with subprocess.Popen(command, stdout=follower, stderr=follower, stdin=subprocess.DEVNULL) as process:
        os.close(follower)
        shown = b""
        with contextlib.suppress(OSError):  # how Linux says that the other end is closed
            while part := os.read(leader, 4096):
                shown += part
    os.close(leader)
    assert process.returncode == 0
    _, head, first, second, *_ = shown.decode().split("\r\n")
    assert "data set 'digits' of package seu-bench" in head
    assert re.fullmatch(r" +\.\.\. +describes_itself \(1 of 2\)\r\x1b\[K +ok +describes_itself +\d+\.\d s", first)
    assert re.match(r" +\.\.\. +says_that_it_is_missing \(2 of 2\)\r\x1b\[K +skipped", second)


@pytest.mark.long
def test_interrupted() -> None:
    """Ctrl-C ends the command, not the check that runs; no summary pretends that all were done."""
    code = (
        "import signal, runpy, sys; signal.signal(signal.SIGINT, signal.default_int_handler); sys.argv = sys.argv[1:];"
    )
    code += "runpy.run_module('seu_bench', run_name='__main__')"
    command = [sys.executable, "-c", code, "seu-bench", "check-plugin", "ewc"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        process.send_signal(signal.SIGINT)
        rest, said = process.stdout.read(), process.stderr.read()
    assert lines[0] == "strategy 'ewc' of package seu-bench\n" and "learns" in lines[1]
    assert (process.returncode, said.strip()) == (130, "interrupted")
    assert "checks in" not in rest


@pytest.mark.long
def test_the_traceback(stranger: Callable[..., Answer]) -> None:
    """Shown whole where it is asked for, from the check to the plugin."""
    answer = stranger("dividing", "-k", "keeps_its_budget", "--traceback")
    assert answer.status == 1
    assert "Traceback (most recent call last)" in answer.out and "test_keeps_its_budget" in answer.out
    assert "_pytest" not in answer.out


def test_unknown_name(command: Command) -> None:
    """A name that nobody registered is refused with what there is."""
    answer = command("check-plugin", "randon")
    assert answer.status == 2
    assert "'randon' (did you mean 'random'?)" in answer.err and "zero_cost" in answer.err


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


def test_list_shows_options(command: Command) -> None:
    """A kind is listed a line each; one name of it is shown with its options: type, default, help."""
    lines = command("list", "searchers").out.splitlines()
    assert len(lines) == len(Registry().searchers) + 1
    assert re.search(r"^  darts +seu-bench +differentiable search", "\n".join(lines), re.MULTILINE)
    assert lines[-1] == "seu-bench list searchers NAME shows one with its options"
    out = command("list", "searchers", "darts").out
    assert re.search(r"^ order +1 \| 2 +1 +order of the architecture's gradient", out, re.MULTILINE)
    assert re.search(r"^ epochs +int > 0 +as the protocol says +epochs of the stage *$", out, re.MULTILINE)
    # No protocol has it.
    out = command("list", "strategies", "packnet").out
    assert re.search(r"^ retrain_epochs +int > 0 +not set +epochs of retraining after pruning; not set:", out, re.M)
