"""Factories that a plugin registers: light to import, whatever they build, and whether or not that is installed.

``seu-bench --help`` imports this module.
"""

from __future__ import annotations

import importlib.util
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import click

    from seu_bench.config.options import Options

Factory = TypeVar("Factory")
Factory_contra = TypeVar("Factory_contra", contravariant=True)


class Register(Protocol[Factory_contra]):
    """The function that a registering hook is called with."""

    def __call__(self, name: str, factory: Factory_contra | Unavailable) -> None:
        """Offer ``factory`` under ``name``, or say why it is not there."""


@dataclass(frozen=True)
class Unavailable:
    """Registered in place of a factory: why this name cannot be used, and what to do about it."""

    reason: str
    remedy: str = ""


def offer(factory: Factory, extra: str, *modules: str) -> Factory | Unavailable:
    """Return a factory, or an :class:`Unavailable` where it needs modules that an ``extra`` of seu-bench installs."""
    # A mere folder of that name in the working folder can be imported too, but has no origin.
    missing = [name for name in modules if getattr(importlib.util.find_spec(name), "origin", None) is None]
    if not missing:
        return factory
    return Unavailable(f"not installed: {', '.join(missing)}", f"pip install 'seu-bench[{extra}]'")


@dataclass(frozen=True)
class Deferred:
    """A function or a class, ``package.module:name``, that is imported when it is called."""

    target: str

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Import the function and call it."""
        return pkgutil.resolve_name(self.target)(*arguments, **keywords)


@dataclass
class LazyFactory:
    """Factory of a strategy, a searcher, a creator or a logger whose parts are imported when they are first used.

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
        inputs: of a strategy: kinds of samples that it can learn, or a function that returns them, given its options;
            by default those of its backbone.
        needs_validation: whether it cannot do without validation images, or a function that says so, given its options.
        title: display name, as papers write it; empty: the name.
        citation: BibTeX entries of its papers, or ``package:key`` of those in ``references.bib`` of a package.
        reference: of a strategy that is no learner to be ranked: what it is a reference of.
        reference_components: it is a reference with these components alone.
        is_remote: of a logger: whether it talks to another machine with given options, and is called in a thread.
        target: ``"package.module:name"`` of its code, where that is not what ``build`` names.
        check_options: options with which ``seu-bench check-plugin`` tries it, where its defaults do not learn.

    Example:
        ``register("mine", LazyFactory("my logger", options=MyOptions, build="my_plugin.logger:build"))``
    """

    summary: str
    _: KW_ONLY
    options: type[Options]
    build: Any
    cost: Any = None
    estimate_passes: Callable[[Any, Any, int], tuple[int, int]] = lambda *_: (0, 0)
    components: Mapping[str, str] = field(default_factory=dict)
    presets: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    scenarios: Sequence[str] = ("task",)
    inputs: Sequence[str] | Callable[[Any], Sequence[str]] | None = None
    needs_validation: bool | Callable[[Any], bool] = False
    title: str = ""
    citation: str = ""
    reference: str | None = None
    reference_components: Mapping[str, str] = field(default_factory=dict)
    is_remote: Callable[[Any], bool] = lambda _: False
    check_options: Mapping[str, object] = field(default_factory=dict)
    target: str | None = None

    def __post_init__(self) -> None:
        self.build, self.cost = (Deferred(it) if isinstance(it, str) else it for it in (self.build, self.cost))
        self.cost = self.cost or self._rehearse

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
    """A :class:`click.Command`, ``package.module:name``, that is imported when it runs or its help is shown.

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
