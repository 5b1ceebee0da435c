"""Factories that a plugin registers: light to import, whatever they build, and whether or not that is installed.

``seu-bench --help`` imports this module.
"""

from __future__ import annotations

import importlib.util
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import click

    from seu_bench.config.options import Options

Factory = TypeVar("Factory")


def offered(factory: Factory, extra: str, *modules: str) -> Factory | Unavailable:
    """Offer a factory if the packages that it needs are installed.

    Args:
        extra: the optional dependencies of seu-bench that bring it.
        modules: the packages that it imports, by import name.

    Returns:
        The factory, or an :class:`Unavailable` with the reason and the remedy.
    """
    # A mere folder of that name in the working folder can be imported too, but has no origin.
    missing = [name for name in modules if getattr(importlib.util.find_spec(name), "origin", None) is None]
    if not missing:
        return factory
    return Unavailable(f"not installed: {', '.join(missing)}", f"pip install 'seu-bench[{extra}]'")


Factory_contra = TypeVar("Factory_contra", contravariant=True)


class Register(Protocol[Factory_contra]):
    """The function that a registering hook is called with."""

    def __call__(self, name: str, factory: Factory_contra | Unavailable) -> None:
        """Offer ``factory`` under ``name``, or say why it is not there."""


@dataclass(frozen=True)
class Unavailable:
    """Registered in place of a factory: why this name cannot be used, for ``list`` and for errors.

    Attributes:
        remedy: what to do about it; empty: choose another name.
    """

    reason: str
    remedy: str = ""


@dataclass(frozen=True)
class Deferred:
    """A function that is imported when it is called, by its ``reference``; see :func:`deferred`."""

    reference: str

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Import the function and call it."""
        return pkgutil.resolve_name(self.reference)(*arguments, **keywords)


def deferred(reference: str) -> Deferred:
    """Return a function that imports another one when it is called, and calls it.

    Args:
        reference: ``"package.module:function"``; a class is a function, too.
    """
    return Deferred(reference)


class LazyFactory:
    """Factory of a strategy, a searcher, a creator or a logger whose parts are imported when they are first used.

    A class of your own with the same attributes does as well.

    Args:
        summary: one line for ``seu-bench list``.
        options: class of the options.
        build: what makes it, as ``"package.module:function"`` or as a function. Called with the ``context`` of a run
            for a strategy, with ``options`` and ``task`` for a searcher or a creator, with ``options`` and
            ``folder`` for a logger.
        cost: of a strategy: returns the cost of a run, given the ``context``; in the same two ways. By default a
            rehearsal, as of a :class:`seu_bench.Method`.
        estimate_passes: of a searcher or a creator: returns the images that it passes forward to train and to
            evaluate, given ``options``, ``schedule`` and ``train_images``; none by default.
        components: of a strategy: names of the default searcher and creator, e.g. ``{"searcher": "mdl"}``.
        presets: of a strategy: option values by name of a preset.
        scenarios: of a strategy: those that it can learn, of ``task``, ``class`` and ``domain``.
        reference: of a strategy that is no learner to be ranked: what it is a reference of, in a few words.
        reference_components: of a strategy that takes components: it is a reference with these alone.
        is_remote: of a logger: whether it talks to another machine with these ``options``. It is then called in a
            thread of its own, which a run does not wait for.
        check_options: of a strategy, a searcher or a creator: options with which it learns the tiny streams of
            ``seu-bench check-plugin``, where its defaults do not.

    Example:
        ``register("mine", LazyFactory("my logger", options=MyOptions, build="my_plugin.logger:build"))``
    """

    def __init__(
        self,
        summary: str,
        *,
        options: type[Options],
        build: str | Callable[..., Any],
        cost: str | Callable[..., Any] | None = None,
        estimate_passes: Callable[[Any, Any, int], tuple[int, int]] | None = None,
        components: Mapping[str, str] | None = None,
        presets: Mapping[str, Mapping[str, object]] | None = None,
        scenarios: Sequence[str] = ("task",),
        reference: str | None = None,
        reference_components: Mapping[str, str] | None = None,
        is_remote: Callable[[Any], bool] | None = None,
        check_options: Mapping[str, object] | None = None,
    ) -> None:
        self.summary = summary
        self.options = options
        self.build = deferred(build) if isinstance(build, str) else build
        self.cost = deferred(cost) if isinstance(cost, str) else cost or self._rehearse
        self.estimate_passes = estimate_passes or (lambda *_: (0, 0))
        self.components = components or {}
        self.presets = presets or {}
        self.scenarios = tuple(scenarios)
        self.reference = reference
        self.reference_components = reference_components or {}
        self.is_remote = is_remote or (lambda _: False)
        self.check_options = check_options or {}

    def _rehearse(self, context: Any) -> Any:
        from seu_bench.training.rehearsal import rehearse

        return rehearse(self.build, context)


class CommandFactory(Protocol):
    """A command of ``seu-bench``; ``summary`` is its line in ``seu-bench --help``."""

    @property
    def summary(self) -> str: ...

    def build(self) -> click.Command:
        """Return the command; called when the command runs or its help is shown."""


@dataclass(frozen=True)
class LazyCommand:
    """A command that is imported when it runs or its help is shown.

    Args:
        target: the :class:`click.Command`, as ``package.module:name``.
        summary: one line for ``seu-bench --help``, which then does not import the command.

    Example:
        ``register("latex", LazyCommand("my_package.latex:latex", "print a leaderboard as LaTeX"))``
    """

    target: str
    summary: str = ""

    def build(self) -> click.Command:
        """Import the command.

        Raises:
            TypeError: the target is not a click command.
        """
        import click

        command = pkgutil.resolve_name(self.target)
        if not isinstance(command, click.Command):
            raise TypeError(f"{self.target} is not a click command")
        return command
