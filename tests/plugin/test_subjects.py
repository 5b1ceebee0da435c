"""Names that ``check-plugin`` takes, and whose code is behind them."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.broken_components import Stranger

from seu_bench import hookimpl
from seu_bench.errors import UnknownNameError
from seu_bench.plugin.code import subjects
from seu_bench.plugin.registration import Unavailable
from seu_bench.plugin.registry import Registry, load_plugins


class Watching:
    """A plugin that registers nothing, and one name that cannot be used."""

    @hookimpl
    def register_loggers(self, register: object) -> None:
        """Say what is missing."""
        register("absent", Unavailable("its library is not installed", "install it"))  # type: ignore[operator]


@pytest.fixture(scope="module")
def registry() -> Registry:
    manager = load_plugins()
    manager.register(Stranger(), name="stranger")
    manager.register(Watching(), name="watching")
    return Registry(manager)


def test_names_plugins_and_packages(registry: Registry) -> None:
    """A registered name stands for all kinds of that name, a plugin's or a package's for everything that it offers."""
    assert [each.kind for each in subjects(registry, "mdl")] == ["searcher", "creator"]
    kinds = [subjects(registry, name)[0].kind for name in ("naive", "mlp", "digits", "acc", "local", "run")]
    assert kinds == ["strategy", "backbone", "data set", "metric", "executor", "command"]
    assert {str(each) for each in subjects(registry, "creators")} >= {"creator 'frugal' of package seu-bench"}
    assert {each.entry.package for each in subjects(registry, "seu-bench")} == {"seu-bench"}
    assert {each.kind for each in subjects(registry, "stranger")} == {"searcher", "creator"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("randon", r"'randon' \(did you mean 'random'\?\)"),
        ("absent", "'absent' cannot be used: its library is not installed"),
        ("watching", "nothing that can be checked is called 'watching'"),
    ],
)
def test_names_that_cannot_be_checked(registry: Registry, name: str, said: str) -> None:
    with pytest.raises(UnknownNameError, match=said) as caught:
        subjects(registry, name)
    assert caught.value.remedy


def test_refusal_imports_nothing_heavy() -> None:
    """Neither torch nor pytest, which take seconds, is needed to say that a name is unknown."""
    code = (
        "import sys; from seu_bench.cli.main import cli, _status_of; sys.argv = ['seu-bench', 'check-plugin', 'x_y'];"
        "print(_status_of(cli)[0], {'torch', 'pytest', 'numpy', 'avalanche'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("2 set()\n", "")
