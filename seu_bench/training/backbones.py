"""The network below the heads that was chosen for a run: built, filled with weights, and with heads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.config.common_options import BackboneOptions
from seu_bench.errors import RequestError
from seu_bench.training.interfaces import StrategyContext, checked_options

if TYPE_CHECKING:
    from torch import nn

    from seu_bench.models.backbone import BackboneModel


def width_factor(context: StrategyContext) -> float:
    """Return the factor on the widths of hidden layers: the option ``width``, or the protocol's."""
    return _factor(context, "width")


def dropout_factor(context: StrategyContext) -> float:
    """Return the factor on dropout rates: the option ``dropout``, or the protocol's."""
    return _factor(context, "dropout")


def _factor(context: StrategyContext, name: str) -> float:
    own = getattr(context.options, name, None)
    return float(getattr(context.protocol.model, name) if own is None else own)


def build_backbone(context: StrategyContext, *, may_be_frozen: bool = False) -> tuple[nn.Module, int]:
    """Make the network below the heads that was chosen for a run, its weights drawn from torch's generators or loaded.

    Args:
        context: of the run.
        may_be_frozen: whether the caller heeds the option ``frozen``; otherwise it is refused.

    Returns:
        A module from batches ``[N, *plan.input.shape]`` to features ``[N, F]``, and ``F``.

    Raises:
        RequestError: no backbone was chosen, it does not fit the stream's samples, or the weights not the backbone.
    """
    from torch.nn.modules.dropout import _DropoutNd

    from seu_bench.models.pretrained import load_pretrained

    if context.backbone is None or not isinstance(context.options, BackboneOptions):
        raise RequestError(
            "no backbone was chosen",
            where=type(context.options).__name__,
            remedy="derive the strategy's options from seu_bench.config.BackboneOptions; a method with a network of "
            "its own overrides make_model(context)",
        )
    if context.options.frozen and not may_be_frozen:
        raise RequestError(
            "the strategy learns with all layers of the backbone, and cannot leave it frozen",
            where="frozen",
            remedy="leave the option out, or choose a strategy of heads on a backbone, such as naive or ewc",
        )
    plan, factor = context.plan, dropout_factor(context)
    network, features = context.backbone.build(plan.input, width_factor(context))
    for module in network.modules():
        if isinstance(module, _DropoutNd):
            module.p = min(1.0, factor * module.p)
    if context.options.weights is not None and not context.restores:
        on_meta = any(parameter.is_meta for parameter in network.parameters())  # where only sizes are asked for
        if not on_meta:
            load_pretrained(network, context.options.weights)
    return network, features


def backbone_model(context: StrategyContext, *, may_be_frozen: bool = True) -> BackboneModel:
    """Make the backbone chosen for a run with the heads of its scenario; otherwise as :func:`build_backbone`."""
    from seu_bench.models.backbone import BackboneModel
    from seu_bench.utils.seeding import RandomState, derive_seed

    infers = getattr(context.options, "infer_task", None) is not None  # then each task has a head
    with RandomState(derive_seed(context.seed, "model")).active():
        network, plan = build_backbone(context, may_be_frozen=may_be_frozen), context.plan
        scenario = "task" if infers else plan.scenario
        frozen = checked_options(context, BackboneOptions).frozen
        seed = context.seed if plan.open_ended else None
        return BackboneModel(*network, plan.classes_per_task, scenario, frozen=frozen, seed=seed)
