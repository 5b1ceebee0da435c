"""Avalanche's per-batch callbacks, handed only to those plugins, metrics and loggers that do something in them.

A strategy fires nine callbacks per training batch; each reaches every plugin, and the evaluation plugin copies the
experience in each, whether or not a metric listens. On a small network that is a twentieth of the time
(``make perf``). Who listens is found out once per epoch, by comparing methods with the empty ones of Avalanche's
base classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from avalanche.core import BasePlugin, BaseSGDPlugin, SupervisedPlugin
from avalanche.evaluation import PluginMetric
from avalanche.logging import BaseLogger
from avalanche.training.plugins import EvaluationPlugin

Listener: TypeAlias = Callable[..., Any]

#: Classes whose callbacks do nothing.
_EMPTY = (BasePlugin, BaseSGDPlugin, SupervisedPlugin, PluginMetric, BaseLogger)


def implements(target: object, event: str) -> bool:
    """Whether ``target`` does something in the callback ``event``."""
    if isinstance(target, EvaluationPlugin) and event not in vars(type(target)):
        return any(implements(listener, event) for listener in (*target.metrics, *target.loggers))
    owner = next((base for base in type(target).__mro__ if event in vars(base)), None)
    return (owner is not None and owner not in _EMPTY) or event in vars(target)


def _lean(event: str) -> Callable[..., None]:
    def trigger(self: LeanCallbacks, **kwargs: Any) -> None:
        listeners = self._listeners.get(event)
        if listeners is None:
            found = [plugin for plugin in self.plugins if implements(plugin, event)]
            listeners = self._listeners[event] = [getattr(plugin, event) for plugin in found]
        for listener in listeners:
            listener(self, **kwargs)

    return trigger


class SilentLogger(BaseLogger):
    """A logger that logs nothing: without one, Avalanche warns that there is none."""


class LeanCallbacks:
    """Mixin for an Avalanche strategy, to stand before its template. :meth:`forget_listeners` when plugins change."""

    plugins: list[Any]
    _listeners: dict[str, list[Listener]]

    def forget_listeners(self) -> None:
        """Find out anew who listens."""
        self._listeners = {}

    _before_training_iteration = _lean("before_training_iteration")
    _before_forward = _lean("before_forward")
    _after_forward = _lean("after_forward")
    _before_backward = _lean("before_backward")
    _after_backward = _lean("after_backward")
    _before_update = _lean("before_update")
    _after_update = _lean("after_update")
    _after_training_iteration = _lean("after_training_iteration")
    _before_eval_iteration = _lean("before_eval_iteration")
    _before_eval_forward = _lean("before_eval_forward")
    _after_eval_forward = _lean("after_eval_forward")
    _after_eval_iteration = _lean("after_eval_iteration")
