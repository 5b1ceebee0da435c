"""SEU: the strategy, its search spaces, its multinomial searcher and its multinomial task-model creators.

Torch is imported only when one of them is built.
"""

from __future__ import annotations

from seu_bench import LazyFactory, Register, hookimpl
from seu_bench.results import REFERENCE_ROWS
from seu_bench.training import StrategyFactory
from seu_bench_kit import CreatorFactory, SearcherFactory, SpaceFactory, schedule_passes
from seu_bench_seu.options import ADAPTER, PRESETS, AdaptOptions, CreationOptions, SearchOptions, SeuOptions


@hookimpl
def register_strategies(register: Register[StrategyFactory]) -> None:
    """Offer ``seu``."""
    register(
        "seu",
        LazyFactory(
            "searchable extension units: a super model that grows from nothing and never forgets",
            options=SeuOptions,
            build="seu_bench_seu.strategy:Seu.build",
            cost="seu_bench_seu.strategy:Seu.forecast",
            components={"searcher": "mdl", "creator": "mdl"},
            presets=PRESETS,
            title="SEU",
            citation="seu_bench_kit:wang2020lifelong",
            reference=REFERENCE_ROWS["seu + random + all_new"],
            reference_components={"searcher": "random", "creator": "all_new"},
        ),
    )


@hookimpl
def register_spaces(register: Register[SpaceFactory]) -> None:
    """Offer ``darts_cell``, ``mbconv`` and ``dense``."""
    cells = "cells of eight operations on two inputs (the paper's)"
    register("darts_cell", SpaceFactory(cells, "seu_bench_kit.cells:CellSpace"))
    residuals = "inverted residuals: kernel, expansion, squeeze-and-excitation"
    register("mbconv", SpaceFactory(residuals, "seu_bench_kit.mbconv:MBConvSpace"))
    layers = "linear layers: width and activation; for features and tokens, too"
    register("dense", SpaceFactory(layers, "seu_bench_kit.dense:DenseSpace", ("image", "features", "tokens")))


@hookimpl
def register_searchers(register: Register[SearcherFactory]) -> None:
    """Offer ``mdl``."""
    register(
        "mdl",
        SearcherFactory(
            "multinomial distribution learning: samples one operation per edge and epoch (the paper's)",
            options=SearchOptions,
            build="seu_bench_seu.mdl:MdlSearch",
            estimate_passes=schedule_passes,
        ),
    )


@hookimpl
def register_creators(register: Register[CreatorFactory]) -> None:
    """Offer ``mdl`` and ``adapt``."""
    register(
        "mdl",
        CreatorFactory(
            "multinomial distribution learning: samples one unit per layer and epoch (the paper's)",
            options=CreationOptions,
            build="seu_bench_seu.mdl:MdlCreation",
            estimate_passes=schedule_passes,
        ),
    )
    register(
        "adapt",
        CreatorFactory(
            "mdl's rule over new units and old ones with a 1x1 adapter and BatchNorm statistics of the task's own",
            options=AdaptOptions,
            build="seu_bench_seu.adapt:AdaptCreation",
            estimate_passes=schedule_passes,
            wrap="seu_bench_seu.adapt:wrap",
            largest=ADAPTER,
        ),
    )
