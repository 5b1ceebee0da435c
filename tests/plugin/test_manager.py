"""Plugins: found by entry point, named when they are broken, and kept apart from the core and from each other."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.commands import Command, Install

import seu_bench
from seu_bench import hookimpl
from seu_bench.config.options import Options
from seu_bench.errors import UnknownNameError
from seu_bench.plugin.registration import Register
from seu_bench.plugin.registry import Registry, load_plugins
from seu_bench.results.metric import Metric
from seu_bench.training.interfaces import StrategyFactory

CORE = Path(seu_bench.__file__).resolve().parent
PLUGINS = CORE.parent / "plugins"
IMPORTS = "from types import SimpleNamespace\nfrom seu_bench import hookimpl\nFILE = SimpleNamespace(load=None)\n"


def refused(*said: str) -> Registry:
    """The registry of the present installation, in which one fault is noted and all else is there."""
    registry = Registry()
    (fault,) = set(registry.faults.values())
    assert fault.remedy
    for part in said:
        assert part in str(fault), fault
    assert {"naive", "seu"} <= {*registry.strategies} and "split_digits" in registry.benchmarks
    return registry


def test_a_strangers_plugin(command: Command, tiny: Path) -> None:
    """Its names come with the package they are from."""
    entry = Registry().strategies.find("tiny")
    assert (entry.name, entry.plugin, entry.package, entry.summary) == (
        "tiny",
        "tiny",
        "a-stranger",
        "one linear layer",
    )
    lines = [line.split() for line in command("list", "strategies").out.splitlines()]
    assert ["tiny", "a-stranger", "one", "linear", "layer"] in lines


HOOK = IMPORTS + "@hookimpl\ndef {}({}): ...\n"


@pytest.mark.parametrize(
    ("value", "source", "said"),
    [
        ("broken", "import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("broken", "def", "SyntaxError"),
        ("broken", "import sys; sys.exit()", "SystemExit"),
        ("broken:plugin", "", "AttributeError"),
        ("not_there", "", "ModuleNotFoundError: No module named 'not_there'"),
        ("broken", HOOK.format("register_strategy", "register"), "unknown hook 'register_strategy'"),
        ("broken", HOOK.format("register_strategies", "registry"), "registry"),
        ("broken:plugin", "plugin = []", "unhashable"),
    ],
)
def test_plugin_that_cannot_be_used(install: Install, value: str, source: str, said: str) -> None:
    """Plugin, package and entry point are named, whatever it is that fails; all else is there."""
    install("a-stranger", {"mine": value}, {"broken": source})
    refused("'mine'", "a-stranger", said, f"where: {value}", "pip uninstall a-stranger")


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (("one-stranger", "mine"), ("other-stranger", "mine"), ["plugins are called 'mine'", "one-stranger", "other-"]),
        (None, ("a-stranger", "seu"), ["two plugins are called 'seu'", "seu-bench", "a-stranger"]),
        (
            ("one-stranger", "one"),
            ("other-stranger", "two"),
            ["'mine' is registered twice: by one-stranger and by other"],
        ),
        (("one-stranger", "one"), ("one-stranger", "two"), ["by its plugins 'one' and 'two', of package one-stranger"]),
    ],
)
def test_names_that_are_taken(install: Install, first: Any, second: Any, said: list[str]) -> None:
    """Of plugins or of what they register: both owners are named, and neither is dropped silently."""
    source = IMPORTS + "@hookimpl\ndef register_benchmarks(register):\n    register('mine', FILE)\n"
    points: dict[str, dict[str, str]] = {}
    for number, (package, plugin) in enumerate(filter(None, (first, second))):
        points.setdefault(package, {})[plugin] = f"module_{number}"
    for package, named in points.items():
        install(package, named, dict.fromkeys(named.values(), source))
    registry = refused(*said)
    if "registered" in said[0]:
        with pytest.raises(UnknownNameError, match=r"'mine' cannot be used: .*registered twice"):
            registry.benchmarks.find("mine")


class Offering:
    """A plugin that registers one name twice over, and says where it is from."""

    def __init__(self, name: str) -> None:
        self.name = name

    @hookimpl
    def register_strategies(self, register: Register[StrategyFactory]) -> None:
        register(self.name, SimpleNamespace(options=Options, build=None))  # type: ignore[arg-type]

    @hookimpl
    def register_metrics(self, register: Register[Metric]) -> None:
        register(self.name, len)  # type: ignore[arg-type]


def test_our_own_names_cannot_be_taken() -> None:
    """Neither a strategy of ours nor a metric that is defined here can be replaced."""
    for name, said in (("naive", "strategy 'naive'"), ("acc", "metric 'acc'")):
        manager = load_plugins()
        manager.register(Offering(name), name="a-first-one")
        registry = Registry(manager)
        assert f"the {said} is registered twice: by seu-bench and by" in registry.faults["a-first-one"].what
        assert (registry.strategies["naive"].package, registry.metrics["acc"].plugin) == ("seu-bench", "core")


def test_hook_that_fails(install: Install) -> None:
    """A plugin whose hook raises is named with the hook; what it registers elsewhere can be used."""
    source = IMPORTS + "@hookimpl\ndef register_datasets(register):\n    1 / 0\n"
    source += "@hookimpl\ndef register_benchmarks(register):\n    register('fine', FILE)\n"
    install("a-stranger", {"mine": "mine"}, {"mine": source})
    registry = refused("'mine'", "a-stranger", "register_datasets", "ZeroDivisionError", "pip uninstall a-stranger")
    assert "fine" in registry.benchmarks


@pytest.mark.parametrize(
    ("kind", "factory"),
    [
        *itertools.product(["strategies", "executors"], ["None", "SimpleNamespace(options=dict, build=print)"]),
        ("loggers", "7"),
        ("benchmarks", "None"),
        ("datasets", "None"),
    ],
)
def test_factory_that_is_none(command: Command, install: Install, tmp_path: Path, kind: str, factory: str) -> None:
    """Nothing of what is listed beside it fails."""
    source = f"{IMPORTS}@hookimpl\ndef register_{kind}(register):\n    register('odd', {factory})\n"
    install("a-stranger", {"odd": "odd_plugin"}, {"odd_plugin": source})
    for words in (("list",), ("data", "--data-root", tmp_path), ("sweep", "--help"), ("tune", "--help")):
        answer = command(*words)
        assert answer.status == 0, (words, answer)
    assert kind == "datasets" or "registers the" in command("list").out


def test_broken_one_beside(command: Command, tiny: Path, install: Install, tmp_path: Path) -> None:
    """Runs and sweeps by another plugin go on, with a notice; what asks for the broken one is refused."""
    install("broken", {"mine": "broken_module"}, {"broken_module": "1 / 0"})
    asked = ("--strategy", "tiny", "--protocol", "smoke", "--results", tmp_path)
    answer = command("run", *asked)
    assert answer.status == 0 and "plugin 'mine' of package broken cannot be used" in answer.err
    assert command("sweep", *asked, "--seeds", "1").status == 0
    assert "mine  broken  not available: plugin 'mine'" in command("list", "strategies").out
    listed = json.loads(command("list", "--format", "json").out)
    assert [row["name"] for row in listed if row.get("kind") == "plugin"] == ["mine"]
    answer = command("run", "--strategy", "mine")
    assert answer.status == 2 and "unavailable: plugin 'mine' of package broken" in answer.err
    assert command("check-plugin", "mine").status == 2
