"""What SEU registers: light to import, torch only when something is built."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from seu_bench.config.options import Options
from seu_bench.config.protocol import CreationSchedule, SearchSchedule
from seu_bench.training.costing import half_passes
from seu_bench.training.interfaces import Cost, CreationTask, SearchTask, StrategyContext
from seu_bench_seu.options import PRESETS, CreationOptions, SearchOptions, SeuOptions

if TYPE_CHECKING:
    from seu_bench.search_space import Genotype
    from seu_bench.training.stage import Stage
    from seu_bench_seu.strategy import Seu


class MdlSearcherFactory:
    """Multinomial distribution learning over operations."""

    summary = "multinomial distribution learning: samples one operation per edge and epoch (the paper's)"
    options: type[Options] = SearchOptions

    def build(self, options: SearchOptions, task: SearchTask) -> Stage[Genotype]:
        """The search stage of a task."""
        from seu_bench_seu.searcher import MdlSearch

        return MdlSearch(options, task)

    def estimate_passes(self, options: SearchOptions, schedule: SearchSchedule, train_images: int) -> tuple[int, int]:
        """Half of the images train and half are scored in every epoch."""
        return half_passes(options.applied_to(schedule).epochs, train_images)


class MdlCreatorFactory:
    """Multinomial distribution learning over units."""

    summary = "multinomial distribution learning: samples one unit per layer and epoch (the paper's)"
    options: type[Options] = CreationOptions

    def build(self, options: CreationOptions, task: CreationTask) -> Stage[tuple[int, ...]]:
        """The creation stage of a task."""
        from seu_bench_seu.creator import MdlCreation

        return MdlCreation(options, task)

    def estimate_passes(
        self, options: CreationOptions, schedule: CreationSchedule, train_images: int
    ) -> tuple[int, int]:
        """Half of the images train and half are scored in every epoch."""
        return half_passes(options.applied_to(schedule).epochs, train_images)


class SeuFactory:
    """The strategy."""

    summary = "searchable extension units: a super model that grows from nothing and never forgets"
    options: type[Options] = SeuOptions
    components: Mapping[str, str] = {"searcher": "mdl", "creator": "mdl"}
    presets: Mapping[str, Mapping[str, object]] = PRESETS

    def build(self, context: StrategyContext) -> Seu:
        """The Avalanche strategy."""
        from seu_bench_seu.building import build_seu

        return build_seu(context)

    def cost(self, context: StrategyContext) -> Cost:
        """A range, unless ``genotype`` is given: what a search will find is not known before."""
        from seu_bench_seu.costing import seu_cost

        return seu_cost(context)
