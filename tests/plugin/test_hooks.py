"""Every hook is documented, is called when it says it is, and with exactly the arguments that it names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import seu_bench
from seu_bench import hookimpl, hookspecs
from seu_bench.config.options import Options
from seu_bench.config.run import Request
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import execute
from seu_bench.errors import RunError
from seu_bench.plugin.registry import Registry, load_plugins
from seu_bench.results.record import Record
from seu_bench.training.interfaces import Cost

DOCUMENT = Path(seu_bench.__file__).resolve().parent.parent / "docs" / "reference" / "hooks.md"

#: Every hook that is specified, by name.
HOOKS: dict[str, Callable[..., None]] = {
    name: value for name, value in vars(hookspecs).items() if hasattr(value, f"{hookspecs.GROUP}_spec")
}
REGISTERING = sorted(name for name in HOOKS if name.startswith("register_"))


def arguments(hook: str) -> list[str]:
    return list(inspect.signature(HOOKS[hook]).parameters)


class Everything:
    """A plugin that implements every hook there is, and writes down each call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        for name in HOOKS:
            setattr(self, name, hookimpl(self._implementation(name)))

    def _implementation(self, name: str) -> Callable[..., None]:
        """A function with the parameters of the hook's specification: pluggy passes what a signature asks for."""

        def called(**values: Any) -> None:
            self.calls.append((name, values))
            if name.startswith("register_"):
                values["register"](f"mine_of_{name}", Number())

        parameters = ", ".join(arguments(name))
        passed = ", ".join(f"{parameter}={parameter}" for parameter in arguments(name))
        made: Callable[..., None] = eval(f"lambda {parameters}: called({passed})", {"called": called})
        return made

    def of(self, hook: str) -> list[dict[str, Any]]:
        return [values for name, values in self.calls if name == hook]


class Number:
    """Everything registered under every name; a metric, where it is taken for one."""

    summary = "seven"
    options = Options
    build = load = info = None

    def __call__(self, record: Record) -> int:
        return 7


def watched(results: Path, *plugins: object, **asked: Any) -> tuple[list[tuple[str, Mapping[str, Any]]], Record]:
    """A run on eight images per task, with every call of a hook as pluggy was asked for it.

    It finds a checkpoint that is none, so that there is something to notice.
    """
    manager = load_plugins()
    for plugin in plugins:
        manager.register(plugin, name=type(plugin).__name__.lower())
    calls: list[tuple[str, Mapping[str, Any]]] = []
    manager.add_hookcall_monitoring(
        lambda name, implementations, values: calls.append((name, dict(values))), lambda *outcome: None
    )
    registry = Registry(manager)
    fields = {"strategy": "tiny", "protocol": "smoke", "limit": 8, "results": results, "device": "cpu"}
    run = resolve(registry, Request(**(fields | asked)))
    damaged = results / "runs" / run.spec.run_id / "checkpoints" / "000001.ckpt"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("no checkpoint")
    return calls, execute(registry, run).record


@pytest.mark.parametrize("hook", HOOKS)
def test_documented_signature(hook: str) -> None:
    """The guide shows each hook exactly as it is: names, types, order."""
    shown = re.findall(rf"^def {hook}\(.*$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    signature = str(inspect.signature(HOOKS[hook])).replace("'", "")
    assert f"def {hook}{signature}" in [line.rstrip(":") for line in shown]


@pytest.mark.parametrize("hook", REGISTERING)
def test_what_is_registered_can_be_found(hook: str) -> None:
    """A name that a plugin offers is in the kind of that hook, and in no other."""
    manager = load_plugins()
    manager.register(Everything(), name="everything")
    kinds = Registry(manager).kinds
    assert [plural for plural, kind in kinds.items() if f"mine_of_{hook}" in kind] == [hook.removeprefix("register_")]
    entry = kinds[hook.removeprefix("register_")][f"mine_of_{hook}"]
    assert (entry.package, entry.summary) == ("everything", "" if hook == "register_metrics" else "seven")


def test_story_of_a_run(tiny: Path, tmp_path: Path) -> None:
    """Each hook is called with the arguments of its specification; started and finished once, each task in order."""
    everything = Everything()
    calls, record = watched(tmp_path, everything)
    assert {name for name, _ in calls} == {name for name, _ in everything.calls} == set(HOOKS)
    for name, values in [*calls, *everything.calls]:
        assert sorted(values) == sorted(arguments(name))
    assert record.metrics["mine_of_register_metrics"] == 7
    told = [name for name, _ in everything.calls if not name.startswith("register_") and name != "run_notice"]
    assert (told[0], told[-1]) == ("run_started", "run_finished")
    assert (told.count("run_started"), told.count("task_learned"), told.count("run_finished")) == (1, 5, 1)
    (start,) = everything.of("run_started")
    assert isinstance(start["cost"], Cost)
    assert start["cost"].all_passes == sum(stage.image_passes for stage in record.stages)
    assert (start["record"].status, start["record"].run_id) == ("running", record.run_id)
    assert [values["task"] for values in everything.of("task_learned")] == [0, 1, 2, 3, 4]
    assert [len(values["record"].params_total) for values in everything.of("task_learned")] == [1, 2, 3, 4, 5]
    assert everything.of("run_finished") == [{"record": record}]


@pytest.mark.parametrize(
    ("fault", "status", "error"),
    [("raise", "failed", RunError), ("diverge", "failed", RunError), ("interrupt", "interrupted", KeyboardInterrupt)],
)
def test_told_of_every_end(tiny: Path, tmp_path: Path, fault: str, status: str, error: type[BaseException]) -> None:
    """Whoever watches learns that a run is over, however it ended."""
    everything = Everything()
    with pytest.raises(error):
        watched(tmp_path, everything, options={"fault": fault})
    (last,) = everything.of("run_finished")
    assert (last["record"].status, len(everything.of("task_learned"))) == (status, 1)


class Breaking:
    """A plugin that watches and fails."""

    def __init__(self, hook: str) -> None:
        def fail() -> None:
            raise ZeroDivisionError("this watcher is broken")

        setattr(self, hook, hookimpl(fail))


@pytest.mark.parametrize("hook", sorted(set(HOOKS) - set(REGISTERING)))
def test_watcher_that_fails(tiny: Path, tmp_path: Path, hook: str) -> None:
    """It is named and not called again, and the others are; the run is what it is without it."""
    said = f"plugin 'breaking' of package breaking failed in {hook} and is not called again: ZeroDivisionError"
    alone, expected = Everything(), watched(tmp_path / "without")[1]
    _, record = watched(tmp_path / "with", alone, Breaking(hook))
    for name in ("status", "accuracy_matrix", "weights_sha256"):
        assert getattr(record, name) == getattr(expected, name)
    assert sum(each["message"].startswith(said) for each in alone.of("run_notice")) == 1
    assert len(alone.of("task_learned")) == 5
