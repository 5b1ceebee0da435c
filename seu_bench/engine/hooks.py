"""Hooks of plugins that watch a run, called so that none of them can stop it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seu_bench.utils.text import error_line

if TYPE_CHECKING:
    from seu_bench.plugin.registry import Registry
    from seu_bench.training.stage import StageProgress


class HookCaller:
    """Calls the watching hooks of a registry's plugins, each by itself.

    Who only watches may not stop a run: a plugin that fails is not called again, and the others are told.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._failed: list[Any] = []

    def on_progress(self, progress: StageProgress) -> None:
        """Call ``stage_progress``."""
        self.notify("stage_progress", progress=progress)

    def notice(self, message: str) -> None:
        """Call ``run_notice`` with a message for the user."""
        self.notify("run_notice", message=message)

    def notify(self, hook: str, **values: Any) -> None:
        """Call a hook of every plugin that watches, in pluggy's order."""
        manager = self._registry.manager
        found = reversed(getattr(manager.hook, hook).get_hookimpls())
        watching = list({id(implementation.plugin): implementation.plugin for implementation in found}.values())
        for plugin in watching:
            if any(plugin is other for other in self._failed) or not manager.is_registered(plugin):
                continue
            # By pluggy and not by hand: a plugin may have hook wrappers.
            alone = manager.subset_hook_caller(hook, [other for other in watching if other is not plugin])
            try:
                alone(**values)
            except (Exception, SystemExit) as error:  # a library that ends the process must not end the run
                self._failed.append(plugin)
                name = manager.get_name(plugin) or "?"
                self.notice(
                    f"plugin {name!r} of package {self._registry.package(name)} failed in {hook} and is not called "
                    f"again: {error_line(error)}; the run continues"
                )
