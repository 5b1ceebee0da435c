"""Classes by their import path, ``module:Class``: strategies of Avalanche as they are, and what a run attaches."""

from __future__ import annotations

import inspect
import pkgutil
import sys
import typing
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import ConfigDict, Field, create_model

from seu_bench.config.common_options import BackboneOptions
from seu_bench.config.options import did_you_mean
from seu_bench.config.streams import SCENARIOS
from seu_bench.errors import RequestError
from seu_bench.plugin.code import file_digest
from seu_bench.plugin.methods import MethodFactory
from seu_bench.plugin.registration import Deferred, LazyFactory
from seu_bench.plugin.registry import Entry
from seu_bench.results.record import CodeRecord
from seu_bench.results.reference_rows import REFERENCE_ROWS

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
        inside = getattr(sys.modules.get(module), "__dict__", {})
        known = [key for key, value in inside.items() if isinstance(value, type)]
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
    optimizer: None = Field(None, description="without effect: it is SGD")
    milestones: None = Field(None, description="without effect on its own loop")
    gamma: None = Field(None, description="without effect on its own loop")
    warmup_epochs: None = Field(None, description="without effect on its own loop")
    first_epochs: None = Field(None, description="without effect on its own loop")
    first_milestones: None = Field(None, description="without effect on its own loop")
    first_weight_decay: None = Field(None, description="without effect on its own loop")


def avalanche_factory(path: str, strategy: type[Any]) -> LazyFactory:
    """Make the factory of a strategy of Avalanche, on the backbone and the data of every other one.

    Its options are those of a backbone and its schedule, and the arguments of its constructor.

    Raises:
        RequestError: a run can give it no model, or not all that it needs.
    """
    takes = {name: it for name, it in inspect.signature(strategy.__init__).parameters.items() if name != "self"}
    try:
        hints = typing.get_type_hints(strategy.__init__)
    except Exception:  # names that are imported for types alone
        hints = {}
    kinds = {name: _option_type(it, hints.get(name)) for name, it in takes.items() if name not in GIVEN}
    own = {name: kind for name, kind in kinds.items() if kind is not None}
    needed = {name for name, it in takes.items() if it.default is it.empty and it.kind is it.KEYWORD_ONLY}
    lacking = ", ".join(sorted(needed - {*own, *GIVEN}))
    if lacking or "model" not in takes:
        fault = f"needs what no option can give ({lacking})" if lacking else "takes no model"
        raise RequestError(
            f"strategy {path} cannot be run by its path: its constructor {fault}",
            where=f"--strategy {path}",
            remedy="derive a class of your own whose constructor takes a model and gives the rest, and name it",
        )
    fields: dict[str, Any] = {}
    for name, kind in own.items():
        default = ... if takes[name].default is inspect.Parameter.empty else takes[name].default
        fields[name] = (kind, Field(default, description=f"argument of {strategy.__name__}"))
    return LazyFactory(
        (inspect.getdoc(strategy) or path).partition("\n")[0].rstrip("."),
        options=create_model(f"{strategy.__name__}Options", __base__=AsItIsOptions, **fields),
        build=partial(Deferred("seu_bench.training.as_it_is:build"), kind=strategy, takes=takes, own=tuple(own)),
        cost="seu_bench.training.as_it_is:cost",
        scenarios=SCENARIOS,
        reference=REFERENCE_ROWS.get(_REFERENCES.get(strategy.__name__, "")),
        target=f"{strategy.__module__}:{strategy.__qualname__}",  # whose source the record names
    )


def strategy_by_path(path: str) -> Entry[Any]:
    """The entry of a strategy that is named by its import path; a RequestError where there is none."""
    from avalanche.training.templates.base_sgd import BaseSGDTemplate

    from seu_bench.training.method import Method

    kind, package = load_class(path, f"--strategy {path}"), path.partition(".")[0].partition(":")[0]
    if not issubclass(kind, BaseSGDTemplate):
        remedy = "name a class derived from avalanche.training.templates.SupervisedTemplate"
        raise RequestError(f"{path} is no strategy of Avalanche", where=f"--strategy {path}", remedy=remedy)
    factory = MethodFactory(path) if issubclass(kind, Method) else avalanche_factory(path, kind)
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
