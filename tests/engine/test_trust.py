"""Trust: what lies on a disk is data. Nothing from it is executed, and no name in it leads out of its folder."""

from __future__ import annotations

import ast
import hashlib
import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.board_records import leaderboards
from support.commands import Command, Install
from support.records import FULL, a_record

from seu_bench.data.sources import TorchvisionSource
from seu_bench.errors import DataCorruptError, ResultsError, SpecError
from seu_bench.plugin.registry import Registry
from seu_bench.results.building import make_leaderboards
from seu_bench.results.record import Record, read_record
from seu_bench.results.record_files import find_record, read_records

ROOT = Path(__file__).parents[2]

#: Modules that execute, or may execute, what they read.
MODULES = {
    *("pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib"),
    *("marshal", "shelve", "jsonpickle", "yaml", "code"),
}
#: Built-in functions that do.
BUILT_IN = {"eval", "exec", "compile", "__import__"}
#: Functions that do unless this argument has this value.
UNLESS = {
    "torch.load": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "numpy.load": ("allow_pickle", False),
}
#: Where it is right all the same: file -> what is used there and why. Nothing needs it now: CIFAR's batches are
#: unpickled by torchvision, after their md5 was checked (see TestOfficialData).
ALLOWED: dict[str, set[str]] = {
    # A file of Python that the user names on purpose, by --plugin or in the environment.
    "seu_bench/plugin/methods.py": {"compile", "exec"},
}


def risks(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of everything in a module that could execute what a file holds."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, name.name) for name in node.names if name.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module.split(".")[0] in MODULES:
                yield node.lineno, node.module
            names = {f"{node.module}.{name.name}" for name in node.names}
            yield from ((node.lineno, name) for name in sorted(names & {*UNLESS, "torch.jit", "torch.hub"}))
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in BUILT_IN or name.startswith(("torch.jit.load", "torch.hub.", "torch.package.")):
                yield node.lineno, name
            elif name in UNLESS:
                argument, due = UNLESS[name]
                given = {keyword.arg: keyword.value for keyword in node.keywords}.get(argument)
                if not (isinstance(given, ast.Constant) and given.value is due):
                    yield node.lineno, name


class TestSource:
    @pytest.mark.parametrize(
        "line",
        [
            "import pickle", "import pickle as p", "from pickle import loads", "import yaml", "import dill.source",
            "import joblib", "import marshal", "import shelve", "eval('1')", "exec('1')",
            "torch.load(f)", "torch.load(f, weights_only=False)", "torch.load(f, weights_only=flag)",
            "np.load(f)", "np.load(f, allow_pickle=True)", "from torch import load", "from numpy import load",
            "torch.jit.load(f)", "torch.hub.load('a', 'b')",
        ],
    )  # fmt: skip
    def test_finds_what_it_looks_for(self, line: str) -> None:
        assert list(risks(f"def f():\n    {line}\n"))

    def test_nothing_from_a_disk_is_executed(self) -> None:
        files = [
            file for name in ("seu_bench", "plugins", "benchmarks") for file in sorted((ROOT / name).rglob("*.py"))
        ]
        assert len(files) > 80
        found = [
            f"{file.relative_to(ROOT)}:{line}: {name}"
            for file in files
            for line, name in risks(file.read_text(encoding="utf-8"))
            if name not in ALLOWED.get(str(file.relative_to(ROOT)), ())
        ]
        assert found == []


class _Bomb:
    """Pickled, it makes a file where it is loaded."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.trace,)


class TestOfficialData:
    def test_cifar_is_checked_before_it_is_unpickled(self, tmp_path: Path) -> None:
        """Files of the right names that are pickles of a stranger are refused and not loaded."""
        from torchvision.datasets import CIFAR10

        known = Registry().datasets["cifar10"].factory
        names = [f"{CIFAR10.base_folder}/{it[0]}" for it in (*CIFAR10.train_list, *CIFAR10.test_list)]
        for name in (*names, f"{CIFAR10.base_folder}/{CIFAR10.meta['filename']}"):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(pickle.dumps(_Bomb(tmp_path / "exploded")))
        pickle.loads((tmp_path / names[0]).read_bytes())
        (tmp_path / "exploded").unlink()  # it works
        assert known.state(tmp_path).status == "corrupt"
        with pytest.raises(DataCorruptError, match="files are damaged or missing"):
            known.load(tmp_path)
        assert not (tmp_path / "exploded").exists()

    @pytest.mark.parametrize("name", ["LSUN", "LSUNClass"])
    def test_class_that_unpickles_whatever_it_finds(self, tmp_path: Path, name: str) -> None:
        from seu_bench.config.benchmark import TorchvisionDefinition

        definition = TorchvisionDefinition(kind="torchvision", class_name=name)
        with pytest.raises(SpecError, match="would run code"):
            TorchvisionSource(definition, "mine").load(tmp_path)


BAD_NAMES = [
    "../x", "..", ".", "", "/etc/passwd", "a/b", "a\\b", "a\0b", ".hidden", "a\n", "\u202ea", "x" * 201, "-o", "a b",
    "ä", "C:x", "a|b",
]  # fmt: skip


def strange(results: Path, folder: str = "strange", **fields: Any) -> Path:
    """A stranger's record, with whatever in it, as a file that lies in a run's folder."""
    document = a_record(data_fingerprint="ab" * 32, metrics={"acc": 0.5}).model_dump(mode="json") | fields
    path = results / "runs" / folder / "record.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def everything(folder: Path) -> dict[str, str]:
    """Name and checksum of every file."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


class TestNames:
    @pytest.mark.parametrize("name", BAD_NAMES)
    @pytest.mark.parametrize("field", ["run_id", "benchmark", "protocol"])
    def test_of_a_record_lead_nowhere(self, tmp_path: Path, field: str, name: str) -> None:
        results = tmp_path / "results"
        path = strange(results, **{field: name})
        with pytest.raises(ResultsError, match=f"not a complete record: {field}"):
            read_record(path)
        before = everything(tmp_path)
        assert list(make_leaderboards(results).paths) == []
        assert everything(tmp_path) == before
        with pytest.raises(ValueError, match=field):
            Record(**(FULL.model_dump() | {field: name}))

    @pytest.mark.parametrize("name", ["../x", "a b", "a\x1b[2J", "", "x" * 201, "-x", "a=b"])
    @pytest.mark.parametrize("kind", ["strategies", "searchers", "benchmarks", "metrics"])
    def test_that_plugins_register_are_plain(self, install: Install, name: str, kind: str) -> None:
        source = (
            "from seu_bench import hookimpl\n"
            "@hookimpl\n"
            f"def register_{kind}(register):\n"
            f"    register({name!r}, object())\n"
        )
        install("a-stranger", {"odd": "odd_plugin"}, {"odd_plugin": source})
        registry = Registry()
        assert name not in registry.kinds[kind]
        fault = str(registry.faults["odd"])
        assert "\x1b" not in fault and "pip uninstall a-stranger" in fault


class TestLinks:
    @pytest.mark.parametrize("what", ["folder", "record"])
    def test_run_that_lies_elsewhere(self, command: Command, tmp_path: Path, what: str) -> None:
        """Neither read by a name nor listed; by its own path the user may read it."""
        results, elsewhere = tmp_path / "results", tmp_path / "elsewhere"
        path = strange(elsewhere, "secret")
        (results / "runs").mkdir(parents=True)
        if what == "folder":
            (results / "runs" / "linked").symlink_to(path.parent)
        else:
            (results / "runs" / "linked").mkdir()
            (results / "runs" / "linked" / "record.json").symlink_to(path)
        (found,) = read_records(results)
        assert isinstance(found, ResultsError) and "is a link" in found.what
        with pytest.raises(ResultsError, match="is a link"):
            find_record(results, "linked")
        before = everything(tmp_path)
        assert leaderboards(results) == []
        for words in (["leaderboard"], ["show", "linked"]):
            answer = command(*words, "--results", results)
            assert "cifar10" not in answer.out
            assert "Traceback" not in answer.err
        assert everything(tmp_path) == before
        assert find_record(results, str(path.parent)).run_id == read_record(path).run_id

    def test_leaderboards_are_not_written_elsewhere(self, command: Command, tmp_path: Path) -> None:
        results, elsewhere = tmp_path / "results", tmp_path / "elsewhere"
        strange(results)
        elsewhere.mkdir()
        (results / "leaderboards").symlink_to(elsewhere)
        answer = command("leaderboard", "--results", results)
        assert answer.status == 2 and "is a link" in answer.err
        assert list(elsewhere.iterdir()) == []

    @pytest.mark.parametrize("name", ["../../elsewhere", "/etc", "..", "a\0b", "*", "[", "x" * 300])
    def test_show_takes_only_names_of_runs(self, command: Command, tmp_path: Path, name: str) -> None:
        strange(tmp_path / "results")
        answer = command("show", name, "--results", tmp_path / "results")
        assert answer.status == 2
        assert answer.err.startswith("error: no run is called ")
