"""The multi-head model of the backbone that a run chose."""

from __future__ import annotations

from seu_bench.config.common_options import BackboneOptions
from seu_bench.errors import RequestError
from seu_bench.models.multihead import BackboneModel
from seu_bench.training.interfaces import StrategyContext
from seu_bench.utils.seeding import RandomState, derive_seed


def width_factor(context: StrategyContext) -> float:
    """Factor on the widths of hidden layers of fixed backbones.

    Args:
        context: of the run.

    Returns:
        The option ``width``, or the protocol's.
    """
    width: float | None = getattr(context.options, "width", None)
    return context.protocol.model.width if width is None else width


def backbone_model(context: StrategyContext) -> BackboneModel:
    """Make the backbone chosen for a run with a head per task, its weights drawn from the run's seed.

    Args:
        context: of the run.

    Returns:
        The model, on the CPU.

    Raises:
        RequestError: the strategy's options are no :class:`~seu_bench.config.common_options.BackboneOptions`, or the
            backbone does not fit the stream's images.
    """
    if context.backbone is None or not isinstance(context.options, BackboneOptions):
        raise RequestError(
            "no backbone was chosen",
            where=type(context.options).__name__,
            remedy="derive the strategy's options from seu_bench.config.common_options.BackboneOptions",
        )
    plan = context.plan
    with RandomState(derive_seed(context.seed, "model")).active():
        backbone, features = context.backbone.build(plan.channels, plan.height, plan.width, width_factor(context))
        return BackboneModel(backbone, features, plan.classes_per_task)
