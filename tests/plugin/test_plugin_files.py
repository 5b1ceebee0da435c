"""Plugins of one file, and classes that are given in place of a name: offered, refused, and told apart."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.commands import FEW_IMAGES, Command
from torch import Tensor
from torch.nn.functional import cross_entropy

import seu_bench
from seu_bench import Method, Reservoir
from seu_bench.config import BackboneOptions
from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.errors import PluginError
from seu_bench.plugin.executors import Job
from seu_bench.plugin.methods import CLASSES, PLUGINS, source_digest
from seu_bench.plugin.registry import Registry, use_plugins
from seu_bench.results.building import read_leaderboards
from seu_bench.results.record import Record, read_record
from seu_bench.sweeps import run_job

#: A replay whose memory changes with every batch, and a metric beside it.
SOURCE = '''
from torch.nn.functional import cross_entropy

from seu_bench import Method, Reservoir, hookimpl
from seu_bench.config import BackboneOptions


class Mine(Method):
    """A replay of my own."""

    name = "mine"

    class Options(BackboneOptions):
        """Its options."""

    def setup(self):
        self.memory = Reservoir(20)

    def batch_loss(self, x, y, task, logits):
        loss = cross_entropy(logits, y)
        if len(self.memory):
            old = self.memory.draw(len(y))
            loss = loss + cross_entropy(self.replay(old.x, old.task), old.y)
        self.memory.add(x=x, y=y, task=task)
        return loss


@hookimpl
def register_metrics(register):
    register("half_acc", lambda record: record.metrics["acc"] / 2)
'''
#: Statements that a script goes on with.
SWEEP = """
import seu_bench
result = seu_bench.sweep(
    strategy=[Mine, "naive"], seeds="0-1", benchmark="few.toml", options={"backbone": "mlp"}, device="cpu"
)
print([job.status for job in result.jobs])
print(seu_bench.run(Mine, "few.toml", options={"backbone": "mlp"}, device="cpu").code[0].sha256)
"""


class Shown(Method):
    """A method that this module defines."""

    name = "shown"

    class Options(BackboneOptions):
        """Its options."""

    def setup(self) -> None:
        """Begin with an empty memory."""
        self.memory = Reservoir(20)

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        """Show the batch to the memory."""
        self.memory.add(x=x, y=y, task=task)
        return cross_entropy(logits, y)


@pytest.fixture(autouse=True)
def none_given(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Undo what a test gives to this process."""
    monkeypatch.setenv(PLUGINS, "")
    yield
    CLASSES.clear()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The plugin, and a benchmark beside it."""
    (tmp_path / "few.toml").write_text(FEW_IMAGES)
    path = tmp_path / "my_method.py"
    path.write_text(SOURCE)
    return path


def run(method: Any, folder: Path, **given: Any) -> Record:
    """Make a tiny run."""
    asked: dict[str, Any] = {"options": {"backbone": "mlp"}, "device": "cpu", "results": folder / "results"} | given
    return seu_bench.run(method, str(folder / "few.toml"), **asked)


def digest(text: str) -> str:
    """SHA-256 of a file with this text."""
    return hashlib.sha256(text.encode()).hexdigest()


def test_folders_of_the_environment(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All files of a folder but tests; a broken one stops only itself, and says where it is broken."""
    (file.parent / "broken.py").write_text("\n\n1 / 0\n")
    (file.parent / "test_it.py").write_text("1 / 0")
    other = file.parent / "deeper" / "other.py"
    other.parent.mkdir()
    other.write_text(SOURCE.replace('"mine"', '"other"').replace("half", "whole"))
    monkeypatch.setenv(PLUGINS, os.pathsep.join([str(file.parent), str(other), str(file)]))
    registry = Registry()
    assert {"mine", "other", "naive"} <= {*registry.strategies}
    assert registry.strategies["mine"].summary == "A replay of my own"
    ((name, fault),) = registry.faults.items()
    assert name == "broken.py" and f"{file.parent / 'broken.py'}:3" in str(fault) and "ZeroDivisionError" in str(fault)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("1 / 0", ["my_method.py:1", "ZeroDivisionError"]),
        ("x = 1\ndef", ["my_method.py:2", "SyntaxError"]),
        ("import sys; sys.exit()", ["my_method.py:1", "SystemExit"]),
        (None, ["FileNotFoundError", "give the path of a file"]),
        ("x = 1", ["offers nothing", "name = 'mine'"]),
        (SOURCE.replace('"mine"', '"naive"'), ["'naive' is registered twice", "seu-bench and by my_method.py"]),
        (SOURCE.replace("metrics(", "metric("), ["unknown hook 'register_metric'"]),
    ],
)
def test_refused_where_it_is_given(file: Path, command: Command, source: str | None, said: list[str]) -> None:
    """With exit status 2; nothing of it stays."""
    file.unlink() if source is None else file.write_text(source)
    answer = command("list", "strategies", "--plugin", file)
    assert (answer.status, answer.out) == (2, "")
    for part in said:
        assert part in answer.err
    with pytest.raises(PluginError):
        use_plugins(file)
    assert not Registry().faults and os.environ[PLUGINS] == ""


def test_two_files_of_one_name(file: Path, command: Command) -> None:
    """Refused, with both; a class replaces that of a file, as a file does what was a class."""
    other = file.parent / "other.py"
    other.write_text(SOURCE.replace("half", "whole"))
    answer = command("list", "--plugin", file, "--plugin", other)
    assert answer.status == 2 and "'mine' is registered twice: by my_method.py and by other.py" in answer.err

    class Mine(Shown):
        name = "mine"

    registry = use_plugins(file, [Mine])
    assert registry.strategies["mine"].factory.method is Mine  # type: ignore[attr-defined]
    assert use_plugins(file).strategies["mine"].package == "my_method.py"


def test_edited_while_the_process_runs(file: Path) -> None:
    """It is imported anew, and the other code is noticed."""
    first = run("mine", file.parent, plugin=file)
    file.write_text(SOURCE + "# edited\n")
    with pytest.raises(seu_bench.errors.ResultsError, match="other code"):
        run("mine", file.parent, plugin=file)
    second = run("mine", file.parent, plugin=file, restart=True)
    assert [it.code[0].sha256 for it in (first, second)] == [digest(SOURCE), digest(SOURCE + "# edited\n")]


def test_a_class(file: Path) -> None:
    """It is known by its name from then on, its code is that of its file, and its model can be loaded."""
    record = run(Shown, file.parent)
    assert (record.strategy, record.status) == ("shown", "finished")
    assert record.code[0].sha256 == hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    assert seu_bench.load_model(record.run_id, record_folder(file)).network is not None
    with pytest.raises(PluginError, match="no method with a name"):
        run(type("Nameless", (Shown,), {"name": ""}), file.parent)
    with pytest.raises(PluginError, match="registered twice"):
        run(type("Ours", (Shown,), {"name": "ewc"}), file.parent)
    assert list(CLASSES) == ["shown"]


def test_an_installed_class(file: Path) -> None:
    """It is what its name stands for."""
    from seu_bench_methods.naive import Naive

    assert run(Naive, file.parent).code == run("naive", file.parent).code
    assert seu_bench.sweep(strategy=Naive, results=record_folder(file), protocol="smoke", jobs=1).jobs and not CLASSES


def record_folder(file: Path) -> Path:
    """The results folder of :func:`run`."""
    return file.parent / "results"


def test_a_class_without_source(file: Path) -> None:
    """Of an interpreter, say: it learns, and its code is not known; other processes cannot have it."""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(SOURCE, names)
    assert source_digest(names["Mine"]) is None
    code, _ = run(names["Mine"], file.parent).code
    assert (code.package, code.sha256) == ("Mine", None)
    with pytest.raises(PluginError, match="%%writefile"):
        seu_bench.sweep(strategy=[names["Mine"], "naive"], results=str(file.parent / "results"))


def test_commands(file: Path, command: Command) -> None:
    """Every command that builds a strategy takes it; without it, the error says how it is given."""
    few, results = file.parent / "few.toml", record_folder(file)
    asked = ("--strategy", "mine", "--benchmark", few, "-o", "backbone=mlp")
    given = ("--plugin", file)
    assert command("cost", *asked, *given).status == 0
    assert "--plugin FILE" in command("cost", *asked).err
    made = command("run", "-q", *asked, *given, "--results", results, "--device", "cpu")
    assert made.status == 0, made.err
    record = read_record(results / "runs" / made.out.strip())
    code = [(code.kind, code.name, code.package, code.version, code.sha256) for code in record.code]
    assert [it for it in code if it[0] != "benchmark file"] == [
        ("strategy", "mine", "my_method.py", None, digest(SOURCE)),
        ("metric", "half_acc", "my_method.py", None, digest(SOURCE)),
    ]
    assert record.metrics["half_acc"] == (record.metrics["acc"] or 0) / 2
    verify = ("verify", made.out.strip(), "--results", results, "--benchmark", few)
    assert command(*verify).status == 2
    verified = command(*verify, *given)
    assert verified.status == 0 and "my_method.py" in verified.out, verified.err
    assert "my_method.py" in command("show", made.out.strip(), "--results", results, *given).out
    assert "A replay of my own" in command("list", "strategies", "mine", *given).out
    assert "mine" not in command("list", "strategies").out
    tuned = command(
        "tune", "--dry-run", *asked, *given, "--results", results, "-g", "epochs=1,2", "--method", "whole-stream"
    )
    assert tuned.status == 0, tuned.err
    again = command("run", *asked, *given, "--results", results, "--device", "cpu")
    assert "nothing was computed" in again.out
    missing = command("check-plugin", file.parent / "nobody.py")
    assert missing.status == 2 and "nobody.py" in missing.err
    checked = command("check-plugin", file, "-k", "evaluation", "-o", "backbone=mlp")
    assert checked.status == 0 and "Test_strategy_mine_0::test_evaluation_changes_nothing PASSED" in checked.out


def test_a_job_of_another_host(file: Path) -> None:
    """As Slurm and Ray carry it, in a text; what it names is all that it needs."""
    asked = Request(
        strategy="mine",
        plugin=(file,),
        benchmark=str(file.parent / "few.toml"),
        options={"backbone": "mlp"},
        device="cpu",
    )
    run_id = resolve(use_plugins(file), asked).spec.run_id
    os.environ[PLUGINS] = ""
    job = Job(run_id=run_id, request=asked.model_copy(update={"results": record_folder(file)}))
    ended = run_job(Job.model_validate_json(job.model_dump_json()))
    assert ended.status == "finished", ended.message


def python(folder: Path, *words: object) -> str:
    """Standard output of Python in a folder, which succeeds."""
    asked, env = [sys.executable, *map(str, words)], {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(asked, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def statuses(folder: Path) -> list[str]:
    """Of all runs."""
    return [read_record(path).status for path in (folder / "results" / "runs").iterdir()]


ASKED = ("--plugin", "my_method.py", "--benchmark", "few.toml", "-o", "backbone=mlp", "--device", "cpu")


@pytest.mark.long
def test_sweep_and_two_versions(file: Path) -> None:
    """Jobs find the file; of two versions each has a row."""
    python(file.parent, "-m", "seu_bench", "sweep", *ASKED, "--strategy", "mine,naive", "--seeds", "0-2")
    file.write_text(SOURCE.replace("Reservoir(20)", "Reservoir(10)"))
    python(file.parent, "-m", "seu_bench", "run", *ASKED, "--strategy", "mine", "--seed", 3)
    assert statuses(file.parent) == ["finished"] * 7
    rows = {row.configuration: row.seeds for row in read_leaderboards(file.parent / "results").boards[0].rows}
    texts = [f"mine (code=my_method.py [{digest(text)[:10]}])" for text in (SOURCE, file.read_text())]
    assert rows == {texts[0]: 3, texts[1]: 1, "naive": 3}


@pytest.mark.long
@pytest.mark.parametrize("guard", ["", "if __name__ == '__main__':"])
def test_a_script(file: Path, guard: str) -> None:
    """Its jobs import it and do not sweep again; the code of run and job is one."""
    body = SWEEP if not guard else guard + SWEEP.replace("\n", "\n    ")
    (file.parent / "script.py").write_text(f"{SOURCE}\nprint('imported')\n{body}")
    told = python(file.parent, "script.py").splitlines()
    assert told[-2:] == [str(["finished"] * 4), digest((file.parent / "script.py").read_text())]
    assert told.count("imported") == 2  # by the script, and once to see that its jobs can
    assert len(statuses(file.parent)) == 4


@pytest.mark.long
def test_a_notebook(file: Path) -> None:
    """A class of a cell, with an import and a helper of others: a file of them is what jobs import."""
    cells = [
        "from __future__ import annotations\nimport nothing_like_it",
        *SOURCE.strip().partition("\n\n\n")[0].split("\n\n"),
        "CAPACITY = 10\nrecord = None",
        "def capacity():\n    return CAPACITY",
        "CAPACITY = 20",
        SOURCE.split("\n\n\n")[1].replace("Reservoir(20)", "Reservoir(capacity())"),
        SWEEP,
    ]
    (file.parent / "shell.py").write_text(
        "from IPython.core.interactiveshell import InteractiveShell\n"
        f"for cell in {cells!r}:\n    InteractiveShell.instance().run_cell(cell, store_history=True)\n"
    )
    told = python(file.parent, "shell.py").splitlines()
    (made,) = (file.parent / "results" / "plugins").iterdir()
    assert told[-2:] == [str(["finished"] * 4), digest(made.read_text())]
    text = made.read_text()
    assert "nothing_like_it" not in text and "sweep" not in text and text.count("CAPACITY = 20") == 1
    assert made.name == f"mine-{digest(text)[:10]}.py"


@pytest.mark.long
def test_killed_and_resumed(file: Path) -> None:
    """To the bit, though the memory changes with every batch; other code is refused on the way."""
    words = (sys.executable, "-m", "seu_bench", "run", *map(str, ASKED), "--strategy", "mine", "-o", "epochs=60")
    runs, deadline = file.parent / "results" / "runs", time.monotonic() + 120
    with subprocess.Popen([*words, "--checkpoint-every", "0"], cwd=file.parent, stderr=subprocess.DEVNULL) as process:
        while not list(runs.glob("*/checkpoints/[!.]*")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        process.kill()

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*words, *more], cwd=file.parent, capture_output=True, text=True, check=False)

    file.write_text(SOURCE + "# edited\n")
    other = run()
    assert "other code" in other.stderr and other.returncode == 2
    file.write_text(SOURCE)
    assert "resum" in run().stderr
    run("--results", "whole")
    resumed, whole = (read_record(next((file.parent / it / "runs").iterdir())) for it in ("results", "whole"))
    assert resumed.weights_sha256 == whole.weights_sha256 is not None
