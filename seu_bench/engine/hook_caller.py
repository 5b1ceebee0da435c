"""Watching hooks of plugins, called so that an exception names the plugin at fault."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

from seu_bench.errors import PluginError, SeuBenchError
from seu_bench.plugin.registry import Registry

if TYPE_CHECKING:
    from seu_bench.training.stage import StageProgress


class HookCaller:
    """Calls the watching hooks of a registry's plugins."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._hook: Any = registry.manager.hook

    def on_progress(self, progress: StageProgress) -> None:
        """Call ``stage_progress``."""
        self.notify("stage_progress", progress=progress)

    def notice(self, message: str) -> None:
        """Call ``run_notice`` with a message for the user."""
        self.notify("run_notice", message=message)

    def notify(self, hook: str, **values: Any) -> None:
        """Call a hook of every plugin that watches."""
        caller = getattr(self._hook, hook)
        try:
            caller(**values)
        except SeuBenchError:
            raise
        except Exception as error:
            entered = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
            found = [impl for impl in caller.get_hookimpls() if getattr(impl.function, "__code__", None) in entered]
            name = found[0].plugin_name if found else "?"
            raise PluginError(
                f"plugin {name!r} of package {self._registry.package(name)} failed in {hook}: "
                f"{type(error).__name__}: {error}",
                remedy="repair or uninstall it",
            ) from error
