"""Classes by their import path, ``module:Class``: strategies of Avalanche as they are, and what a run attaches."""

from __future__ import annotations

import inspect
import pkgutil
import sys
import typing
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import ConfigDict, Field, create_model

from seu_bench.config.common_options import BackboneOptions
from seu_bench.config.options import Options, did_you_mean
from seu_bench.config.streams import SCENARIOS
from seu_bench.errors import RequestError
from seu_bench.plugin.code import file_digest
from seu_bench.plugin.methods import MethodFactory
from seu_bench.plugin.registry import Entry
from seu_bench.results.record import CodeRecord
from seu_bench.results.reference_rows import REFERENCE_ROWS

if TYPE_CHECKING:
    from seu_bench.training.interfaces import Cost, StrategyContext

#: Arguments of an Avalanche strategy that a run gives, or that have no place in one.
GIVEN: Final = (
    *("model", "optimizer", "criterion", "train_mb_size", "train_epochs", "eval_mb_size", "device", "plugins"),
    *("evaluator", "eval_every", "peval_mode", "reset_optimizer"),
)
#: References among Avalanche's strategies.
_REFERENCES: Final = {"JointTraining": "joint", "Cumulative": "cumulative"}
_PLAIN: Final = (bool, int, float, str, type(None))


def load_class(path: str, where: str) -> type[Any]:
    """Import ``module:Class``; a RequestError where there is none says ``where`` it was named."""
    module, _, name = path.partition(":")
    try:
        found = pkgutil.resolve_name(path)
    except (Exception, SystemExit) as error:
        known = [key for key, value in vars(sys.modules.get(module, sys)).items() if isinstance(value, type)]
        what = f"{path} cannot be imported: {type(error).__name__}: {error}{did_you_mean(name, known)}"
        remedy = "a module of your own is found in a folder of PYTHONPATH: PYTHONPATH=. seu-bench ..."
        raise RequestError(what, where=where, remedy=remedy) from error
    if not isinstance(found, type):
        remedy = "name a class as module:Class, e.g. avalanche.training.supervised:Naive"
        raise RequestError(f"{path} is no class", where=where, remedy=remedy)
    return found


def make_attached(paths: Sequence[str]) -> dict[str, Any]:
    """Construct each ``SupervisedPlugin`` or ``PluginMetric`` that ``--attach`` names, without arguments.

    Returns:
        Plugins and metrics by their paths.

    Raises:
        RequestError: one is neither, or cannot be imported or constructed.
    """
    if not paths:
        return {}
    from avalanche.core import SupervisedPlugin
    from avalanche.evaluation import PluginMetric

    made = {}
    for path in paths:
        where = f"--attach {path}"
        kind = load_class(path, where)
        if not issubclass(kind, SupervisedPlugin | PluginMetric):
            remedy = "attach a class derived from avalanche.core.SupervisedPlugin or avalanche.evaluation.PluginMetric"
            raise RequestError(f"{path} is no plugin and no metric of Avalanche", where=where, remedy=remedy)
        try:
            made[path] = kind()
        except Exception as error:
            what = f"{path} cannot be constructed without arguments: {type(error).__name__}: {error}"
            remedy = "attach a class of your own that is derived from it, whose constructor gives them"
            raise RequestError(what, where=where, remedy=remedy) from error
    return made


def attached_code(paths: Sequence[str]) -> list[CodeRecord]:
    """Describe the code of what is attached: the file of each class. Raises as :func:`make_attached` does."""
    found = []
    for path, it in make_attached(paths).items():
        file = getattr(sys.modules[type(it).__module__], "__file__", None)
        kind = "attached metric" if hasattr(it, "result") else "attached plugin"
        found.append(CodeRecord(kind=kind, name=path, sha256=file_digest(Path(file)) if file else None))
    return found


class AsItIsOptions(BackboneOptions):
    """Options of a strategy of Avalanche that is run as it is: its own loop clips nothing, at one learning rate."""

    model_config = ConfigDict(protected_namespaces=())  # its arguments may have any name

    lr_schedule: Literal["constant"] = Field("constant", description="its own loop has one learning rate")
    min_learning_rate: None = Field(None, description="without effect on its own loop")
    clip_norm: None = Field(None, description="without effect on its own loop")


class AvalancheFactory:
    """Factory of a strategy of Avalanche that is run as it is, on the backbone and the data of every other one."""

    components: Mapping[str, str] = {}
    presets: Mapping[str, Mapping[str, object]] = {}
    check_options: Mapping[str, object] = {}
    scenarios = SCENARIOS

    def __init__(self, path: str, strategy: type[Any]) -> None:
        self.path, self.strategy = path, strategy
        self.target = f"{strategy.__module__}:{strategy.__qualname__}"  # whose source the record names
        self.summary = (inspect.getdoc(strategy) or path).partition("\n")[0].rstrip(".")
        self.reference = REFERENCE_ROWS.get(_REFERENCES.get(strategy.__name__, ""))
        named = inspect.signature(strategy.__init__).parameters
        self.parameters = {name: it for name, it in named.items() if name != "self"}

    @cached_property
    def own(self) -> dict[str, Any]:
        """Types of the arguments that become options, by name; a RequestError where a run cannot give all others."""
        try:
            hints = typing.get_type_hints(self.strategy.__init__)
        except Exception:  # names that are imported for types alone
            hints = {}
        kinds = {name: _option_type(it, hints.get(name)) for name, it in self.parameters.items() if name not in GIVEN}
        kinds = {name: kind for name, kind in kinds.items() if kind is not None}
        needed = {name for name, it in self.parameters.items() if it.default is it.empty and it.kind is it.KEYWORD_ONLY}
        lacking = ", ".join(sorted(needed - {*kinds, *GIVEN}))
        if lacking or "model" not in self.parameters:
            fault = f"needs what no option can give ({lacking})" if lacking else "takes no model"
            raise RequestError(
                f"strategy {self.path} cannot be run by its path: its constructor {fault}",
                where=f"--strategy {self.path}",
                remedy="derive a class of your own whose constructor takes a model and gives the rest, and name it",
            )
        return kinds

    @cached_property
    def options(self) -> type[Options]:
        """The class of its options: those of a backbone and its schedule, and its own arguments."""
        fields: dict[str, Any] = {}
        for name, kind in self.own.items():
            default = self.parameters[name].default
            default = ... if default is inspect.Parameter.empty else default
            fields[name] = (kind, Field(default, description=f"argument of {self.strategy.__name__}"))
        made: type[Options] = create_model(f"{self.strategy.__name__}Options", __base__=AsItIsOptions, **fields)
        return made

    def build(self, context: StrategyContext) -> Any:
        """Build the strategy of a run."""
        from seu_bench.training.as_it_is import build

        return build(context, self.strategy, self.parameters, tuple(self.own))

    def cost(self, context: StrategyContext) -> Cost:
        """Forecast the cost of a run as that of naive training; what it passes beyond that is not known."""
        from seu_bench.training.as_it_is import cost

        return cost(context)


def strategy_by_path(path: str) -> Entry[Any]:
    """The entry of a strategy that is named by its import path; a RequestError where there is none."""
    from avalanche.training.templates.base_sgd import BaseSGDTemplate

    from seu_bench.training.method import Method

    kind, package = load_class(path, f"--strategy {path}"), path.partition(".")[0].partition(":")[0]
    if not issubclass(kind, BaseSGDTemplate):
        remedy = "name a class derived from avalanche.training.templates.SupervisedTemplate"
        raise RequestError(f"{path} is no strategy of Avalanche", where=f"--strategy {path}", remedy=remedy)
    factory: Any = MethodFactory(path) if issubclass(kind, Method) else AvalancheFactory(path, kind)
    return Entry(path, factory, package, package)


def _option_type(parameter: inspect.Parameter, hint: Any) -> Any:
    """The type of the option that an argument becomes: its annotation, or else that of its default; ``None``: none."""
    if parameter.kind not in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD):
        return None
    default = parameter.default
    is_wrong = hint is int and isinstance(default, float)  # as of SCR's temperature
    if hint is not None and _is_plain(hint) and not is_wrong:
        return hint
    return type(default) if isinstance(default, _PLAIN[:-1]) else None


def _is_plain(hint: Any) -> bool:
    """Whether values of a type are numbers, texts, or lists and tables of them."""
    arguments = [it for it in typing.get_args(hint) if it is not ...]
    if typing.get_origin(hint) is Literal or hint in _PLAIN:
        return True
    return hint is not type(None) and set(arguments) not in (set(), {type(None)}) and all(map(_is_plain, arguments))
