"""Methods as factories of strategies: what the class says of itself, read without importing it where that is enough."""

from __future__ import annotations

import ast
import importlib.util
import pkgutil
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from seu_bench.errors import PluginError

if TYPE_CHECKING:
    from seu_bench.config.options import Options
    from seu_bench.training.interfaces import Cost, StrategyContext
    from seu_bench.training.method import Method

#: The group of entry points of methods: ``name = package.module:Class``.
GROUP: Final = "seu_bench.methods"


class MethodFactory:
    """Factory of a method; its module is imported when more than the summary is asked for.

    Args:
        method: the class, or where it is, as ``package.module:Class``.
    """

    reference_components: Mapping[str, str] = {}

    def __init__(self, method: str | type[Method]) -> None:
        if isinstance(method, str):
            self.target = method
        else:
            self.target = f"{method.__module__}:{method.__qualname__}"
            self.method = method

    @cached_property
    def method(self) -> type[Method]:
        """The class.

        Raises:
            PluginError: it cannot be imported, or is no method.
        """
        from seu_bench.training.method import Method

        try:
            found = pkgutil.resolve_name(self.target)
        except (Exception, SystemExit) as error:
            raise PluginError(
                f"the method {self.target} cannot be imported: {type(error).__name__}: {error}",
                where=self.target,
                remedy="repair it, or uninstall its package",
            ) from error
        if not (isinstance(found, type) and issubclass(found, Method)):
            raise PluginError(f"{self.target} is no class of seu_bench.Method", where=self.target)
        return found

    @property
    def summary(self) -> str:
        """First line of the docstring, without its full stop."""
        text = (self.method.__doc__ or "") if "method" in vars(self) else _docstring(self.target)
        return text.strip().split("\n\n")[0].replace("\n", " ").strip().removesuffix(".")

    @property
    def options(self) -> type[Options]:
        """The class of its options."""
        return self.method.Options

    @property
    def components(self) -> Mapping[str, str]:
        """Its default searcher and creator."""
        return self.method.components

    @property
    def presets(self) -> Mapping[str, Mapping[str, object]]:
        """Option values by name of a preset."""
        return self.method.presets

    @property
    def scenarios(self) -> tuple[str, ...]:
        """Those that it can learn."""
        return tuple(self.method.scenarios)

    @property
    def reference(self) -> str | None:
        """What it is a reference of."""
        return self.method.reference

    @property
    def check_options(self) -> Mapping[str, object]:
        """Options with which it learns tiny streams."""
        return self.method.check_options

    def build(self, context: StrategyContext) -> Method:
        """Build the method of a run."""
        return self.method.build(context)

    def cost(self, context: StrategyContext) -> Cost:
        """Forecast the cost of a run."""
        return self.method.forecast(context)

    def fixed_parameters(self, context: StrategyContext) -> int | None:
        """Count the parameters of a network that does not grow."""
        return self.method.fixed_parameters(context)


def methods_in(module: Any) -> list[type[Method]]:
    """Return the methods with a name that a module defines, in their order."""
    from seu_bench.training.method import Method

    found = (value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Method))
    return [method for method in dict.fromkeys(found) if method.name and method.__module__ == module.__name__]


def _docstring(target: str) -> str:
    """The docstring of a class, read from the source of its module; empty where there is no source."""
    module, _, name = target.partition(":")
    try:
        spec = importlib.util.find_spec(module)
        source = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
        body: Sequence[ast.stmt] = ast.parse(source).body
    except (ImportError, OSError, SyntaxError, ValueError):
        return ""
    classes = [node for node in body if isinstance(node, ast.ClassDef) and node.name == name]
    return next((ast.get_docstring(node) or "" for node in classes), "")
