"""From a run's context to one of Avalanche's strategies: which plugins make it, with which arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from avalanche.training import plugins as stock
from torch import nn

from seu_bench.data import batch_bounds
from seu_bench.errors import RequestError
from seu_bench.models import BackboneModel
from seu_bench.training import StrategyContext, backbone_model, checked_options
from seu_bench_avalanche.buffers import (
    AgemMemory,
    CumulativeMemory,
    ErAceMemory,
    GdumbMemory,
    GemMemory,
    JointMemory,
    MirMemory,
    PolicyMemory,
)
from seu_bench_avalanche.corrected import (
    CopyingSi,
    EvaluatingMas,
    EvaluatingMir,
    EvaluatingRwalk,
    EvaluatingTeacher,
    HeadOfTheTask,
    WholeReset,
)
from seu_bench_avalanche.memory import (
    CwrMemory,
    FromScratchMemory,
    LwfMemory,
    MasMemory,
    Memory,
    RwalkMemory,
    SiMemory,
)
from seu_bench_avalanche.options import (
    MEMORY,
    AgemOptions,
    EpisodicOptions,
    ErAceOptions,
    GemOptions,
    LwfOptions,
    MasOptions,
    MemoryOptions,
    MirOptions,
    ReplayOptions,
    RwalkOptions,
    SiOptions,
)
from seu_bench_avalanche.strategy import AvalancheStrategy, Cumulative, ErAce, Joint

Methods = Sequence[Any]


def build(name: str, context: StrategyContext) -> AvalancheStrategy:
    """The strategy ``name`` of a run.

    Raises:
        RequestError: the options do not fit the stream.
    """
    model, memory = backbone_model(context, may_be_frozen=False), MEMORIES[name]
    if name in PLUGINS:
        return AvalancheStrategy.of(context, model=model, methods=PLUGINS[name](context, model), memory=memory)
    arguments: dict[str, Any] = {"criterion": nn.CrossEntropyLoss()}
    if name == "er_ace":
        options = checked_options(context, ErAceOptions)
        arguments |= {"mem_size": options.memory, "batch_size_mem": options.batch_size_mem}
    return TEMPLATES[name].of(context, model=model, memory=memory, avalanche=arguments)


def patterns_per_task(options: EpisodicOptions, tasks: int) -> int:
    """Images kept of each task.

    Raises:
        RequestError: the memory has no room for one of each.
    """
    if each := options.patterns_per_experience or (options.memory or MEMORY) // tasks:
        return each
    raise RequestError(
        f"{tasks} tasks have no image each in a memory of {options.memory}",
        where=f"-o memory={options.memory}",
        remedy=f"give {tasks} at least",
    )


def memory_batch(context: StrategyContext, options: ReplayOptions) -> int:
    """Images of the memory per batch: as many as new ones, unless an option says otherwise."""
    return options.batch_size_mem or options.applied_to(context.protocol.training).batch_size


def _lwf(context: StrategyContext, _: BackboneModel) -> Methods:
    options = checked_options(context, LwfOptions)
    return [EvaluatingTeacher(options.alpha, options.temperature)]  # type: ignore[no-untyped-call]


def _si(context: StrategyContext, _: BackboneModel) -> Methods:
    options = checked_options(context, SiOptions)
    return [CopyingSi(options.si_lambda, eps=options.eps)]


def _mas(context: StrategyContext, _: BackboneModel) -> Methods:
    options = checked_options(context, MasOptions)
    return [EvaluatingMas(options.lambda_reg, options.alpha)]


def _rwalk(context: StrategyContext, _: BackboneModel) -> Methods:
    options = checked_options(context, RwalkOptions)
    schedule = options.applied_to(context.protocol.training)
    shortest = min(task.num_train for task in context.plan.tasks)
    # Scores that were never updated within a task are 0, and Avalanche divides by the largest of them.
    batches = schedule.epochs * len(batch_bounds(shortest, schedule.batch_size, join=True))
    return [EvaluatingRwalk(options.ewc_lambda, options.ewc_alpha, min(options.delta_t, batches))]


def _gem(context: StrategyContext, _: BackboneModel) -> Methods:
    options = checked_options(context, GemOptions)
    patterns = patterns_per_task(options, len(context.plan.tasks))
    return [stock.GEMPlugin(patterns, options.memory_strength)]


def _agem(context: StrategyContext, _: BackboneModel) -> Methods:
    options = checked_options(context, AgemOptions)
    tasks = len(context.plan.tasks)
    if options.sample_size < tasks - 1:
        raise RequestError(
            f"a sample of {options.sample_size} images has none of some of the {tasks - 1} earlier tasks",
            where="-o sample_size",
            remedy=f"give at least {tasks - 1}",
        )
    return [stock.AGEMPlugin(patterns_per_task(options, tasks), options.sample_size)]


def _replay(context: StrategyContext, _: BackboneModel) -> Methods:
    options = checked_options(context, ReplayOptions)
    return [stock.ReplayPlugin(options.memory, batch_size_mem=options.batch_size_mem)]


def _mir(context: StrategyContext, _: BackboneModel) -> Methods:
    options = checked_options(context, MirOptions)
    batch = memory_batch(context, options)
    return [EvaluatingMir(batch, options.memory, max(options.subsample, batch))]


def _cwr(_: StrategyContext, model: BackboneModel) -> Methods:
    plugin = stock.CWRStarPlugin(model, cwr_layer_name="heads.0")
    return [HeadOfTheTask(plugin), plugin]


#: Strategies that are plugins of Avalanche.
PLUGINS: Final[dict[str, Callable[[StrategyContext, BackboneModel], Methods]]] = {
    "lwf": _lwf,
    "si": _si,
    "mas": _mas,
    "rwalk": _rwalk,
    "gem": _gem,
    "agem": _agem,
    "replay": _replay,
    "mir": _mir,
    "gdumb": lambda context, _: [stock.GDumbPlugin(checked_options(context, MemoryOptions).memory)],
    "cwr": _cwr,
    "from_scratch": lambda *_: [WholeReset()],
}


#: Strategies that are templates of their own.
TEMPLATES: Final[dict[str, type[AvalancheStrategy]]] = {"cumulative": Cumulative, "er_ace": ErAce, "joint": Joint}


#: What each of them remembers between two tasks. Joint training is one task.
MEMORIES: Final[dict[str, type[Memory]]] = {
    "lwf": LwfMemory,
    "si": SiMemory,
    "mas": MasMemory,
    "rwalk": RwalkMemory,
    "gem": GemMemory,
    "agem": AgemMemory,
    "replay": PolicyMemory,
    "mir": MirMemory,
    "er_ace": ErAceMemory,
    "gdumb": GdumbMemory,
    "cwr": CwrMemory,
    "cumulative": CumulativeMemory,
    "joint": JointMemory,
    "from_scratch": FromScratchMemory,
}
