"""Start-up: packages whose names are imported when they are asked for, and the pause of garbage collection."""

from __future__ import annotations

import gc
import importlib
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import pytest

from seu_bench.utils.startup import COLLECTIONS, collection_paused, defer_imports, wait_passively

FILES = {
    "__init__": "import json\nfrom .first import *\nfrom .second import *\nfrom .inner import *\n"
    "from .named import one, two as zwei\nfrom . import alone\nfrom .alone import same\nfrom .same import same\n"
    "answer = 42\ndef helper(): return answer\n",
    "first": "from .second import borrowed\nclass Twice: here = 'first'\nclass First: pass\n_hidden = 1\n",
    "second": "__all__ = ['Twice', 'borrowed']\nclass Twice: here = 'second'\nclass Unlisted: pass\nborrowed = 3\n",
    "inner/__init__": "from .deep import Deep\n",
    "inner/deep": "class Deep: pass\n",
    "named": "one, two, three = 1, 2, 3\n",
    "alone": "same = 'of alone'\n",
    "same": "same = 'of same'\n",
    "other": "value = 5\n",
    "broken": "import no_such_package\n",
}


@pytest.fixture
def collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Name of a package on the path whose imports wait."""
    for name, text in FILES.items():
        path = (tmp_path / "a_collection" / name).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    defer_imports({"a_collection": None})
    yield "a_collection"
    for name in [name for name in sys.modules if name.partition(".")[0] == "a_collection"]:
        del sys.modules[name]


def imported() -> set[str]:
    return {name.partition(".")[2] for name in sys.modules if name.startswith("a_collection.")}


def test_importing_the_package_imports_no_module_of_it_and_runs_the_rest(collection: str) -> None:
    package = importlib.import_module(collection)
    assert imported() == set()
    assert package.helper() == 42
    assert package.json is json


@pytest.mark.parametrize(
    ("name", "value", "modules"),
    [
        ("zwei", 2, {"named"}),
        ("borrowed", 3, {"second"}),
        ("same", "of same", {"same"}),
        ("other", None, {"other"}),
        ("alone", None, {"alone"}),
    ],
)
def test_a_name_imports_the_module_that_defines_it(
    collection: str, name: str, value: object, modules: set[str]
) -> None:
    found = getattr(importlib.import_module(collection), name)
    assert imported() == modules
    assert isinstance(found, ModuleType) if value is None else found == value


def test_the_last_import_of_a_name_holds_as_it_does_without_waiting(collection: str) -> None:
    package = importlib.import_module(collection)
    assert package.First.__name__ == "First"  # binds no other name of its module
    assert package.Twice.here == "second"


def test_a_name_that_a_package_inside_collects_is_found(collection: str) -> None:
    assert importlib.import_module(collection).Deep.__module__ == "a_collection.inner.deep"
    assert "second" not in imported()


@pytest.mark.parametrize("name", ["Unlisted", "_hidden", "three", "nowhere", "two", "__wrapped__", "broken"])
def test_what_the_package_does_not_import_is_no_attribute(collection: str, name: str) -> None:
    package = importlib.import_module(collection)
    with pytest.raises(AttributeError, match=f"'a_collection' has no attribute '{name}'"):
        getattr(package, name)


def test_a_module_that_cannot_be_imported_says_why(collection: str) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        exec(f"from {collection} import broken", {})


def test_package_that_cannot_be_imported_whole_says_so_each_time(collection: str, tmp_path: Path) -> None:
    init = tmp_path / "a_collection" / "__init__.py"
    init.write_text(init.read_text() + "from .broken import *\n")
    package = importlib.import_module(collection)
    assert package.zwei == 2
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such_package"):
            package.nowhere  # noqa: B018


def test_dir_and_star_imports_have_all_names(collection: str) -> None:
    public = {"First", "Twice", "borrowed", "Deep", "one", "zwei", "same", "alone", "answer", "helper", "json"}
    namespace: dict[str, object] = {}
    exec(f"from {collection} import *", namespace)
    assert public <= set(namespace)
    assert public <= set(dir(importlib.import_module(collection)))
    assert importlib.import_module(collection).other.value == 5  # still there when all is imported


def test_source_and_files_are_found(collection: str) -> None:
    package = importlib.import_module(collection)
    assert "answer = 42" in inspect.getsource(package)
    assert (files(package) / "named.py").is_file()


def test_named_packages_alone_wait_and_some_names_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "b_collection").mkdir()
    (tmp_path / "b_collection" / "__init__.py").write_text("from b_collection import one, two\n")
    for name in ("one", "two"):
        (tmp_path / "b_collection" / f"{name}.py").write_text("value = __name__\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    defer_imports({"b_collection": frozenset({"two"})})
    package = importlib.import_module("b_collection")
    assert {name for name in sys.modules if name.startswith("b_collection.")} == {"b_collection.one"}
    assert package.two.value == "b_collection.two"


NAMES = """
import importlib, json, sys
from seu_bench.utils.startup import COLLECTIONS, defer_imports
def told(value):
    return [getattr(value, "__module__", None), getattr(value, "__qualname__", None) or getattr(value, "__name__", "")]
def names(package):
    module = importlib.import_module(package)
    return {name: told(value) for name, value in vars(module).items() if not name.startswith("__")}
if sys.argv[1] == "all":
    import avalanche
    print(json.dumps({package: names(package) for package in COLLECTIONS}))
else:
    defer_imports()
    asked = json.load(sys.stdin)
    import avalanche.core
    slow = {"wandb", "torchmetrics", "sklearn", "torchvision.models", "torch._dynamo"}
    early = sorted(slow & set(sys.modules))
    found = {}
    for package, of in asked.items():
        module = importlib.import_module(package)
        found[package] = {name: told(getattr(module, name)) for name in of}
    print(json.dumps([early, found]))
"""


@pytest.mark.long
def test_every_name_of_avalanche_and_torchvision_is_the_same_object() -> None:
    def answer(which: str, text: str = "") -> str:
        command = [sys.executable, "-W", "ignore", "-c", NAMES, which]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout.splitlines()[-1]

    eager = answer("all")
    early, found = json.loads(answer("deferred", eager))
    assert early == []
    whole = json.loads(eager)
    # The packages themselves are modules of another class.
    packages = [[None, name] for name in COLLECTIONS]
    for package, names in whole.items():
        assert {k: v for k, v in names.items() if v not in packages} == {
            k: v for k, v in found[package].items() if names[k] not in packages
        }
    assert sum(map(len, whole.values())) > 400


def test_collection_is_paused_until_it_goes_on() -> None:
    assert gc.isenabled()
    with collection_paused() as go_on:
        assert not gc.isenabled()
        go_on()
        assert gc.isenabled()
    with pytest.raises(KeyError), collection_paused():
        raise KeyError
    assert gc.isenabled()


def test_collection_that_was_off_before_stays_off() -> None:
    gc.disable()
    try:
        with collection_paused() as go_on:
            go_on()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_threads_wait_passively_unless_told_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    wait_passively()
    assert os.environ["OMP_WAIT_POLICY"] == "active"
    monkeypatch.delenv("OMP_WAIT_POLICY")
    wait_passively()
    assert os.environ["OMP_WAIT_POLICY"] == "passive"


def test_the_command_prepares_its_process_before_torch_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    lines = (
        "import atexit, os, sys",
        "atexit.register(lambda: print(os.environ['OMP_WAIT_POLICY'], sys.meta_path[0], 'torch' in sys.modules))",
        "sys.argv = ['seu-bench', '--version']",
        "from seu_bench.cli.main import main",
        "main()",
    )
    told = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True).stdout
    policy, *finder, torch = told.splitlines()[-1].split()
    assert (policy, torch) == ("passive", "False")
    assert "startup._Finder" in " ".join(finder)
