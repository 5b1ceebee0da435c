"""What a protocol and its user say of fixed networks: which one, and how much of its dropout."""

from __future__ import annotations

from typing import Any

import pytest

from seu_bench.config.run import Request
from seu_bench.engine.resolve import ResolvedRun, resolve
from seu_bench.errors import UnknownNameError
from seu_bench.models import Dropout
from seu_bench.plugin import Registry

SMOKE = "benchmark.protocols.smoke.model."
#: Of the AlexNet variant, in the order of its layers.
RATES = [0.2, 0.2, 0.5, 0.5, 0.5]


def resolved(strategy: str, **options: Any) -> ResolvedRun:
    named = {key.replace("protocol_", SMOKE): value for key, value in options.items()}
    return resolve(Registry(), Request(strategy=strategy, protocol="smoke", options=named))


def rates(run: ResolvedRun) -> list[float]:
    """Dropout rates of a new strategy's network."""
    model = run.strategy.build(run.context(run.plan())).model
    if hasattr(model, "expand"):  # it grows with each task
        model.expand(0, "cpu")
    modules = list(model.modules())
    layers = [module.p for module in modules if isinstance(module, Dropout)]
    held = [module.dropout for module in modules if hasattr(module, "dropout")]
    return layers or [rate for value in held for rate in (value if isinstance(value, tuple) else [value])]


@pytest.mark.parametrize("strategy", ["naive", "hat", "independent", "pnn", "ltg"])
@pytest.mark.parametrize("options, factor", [({}, 1.0), ({"protocol_dropout": 0.0}, 0.0), ({"dropout": 0.5}, 0.5)])
def test_dropout_of_every_family_is_scaled(strategy: str, options: dict[str, float], factor: float) -> None:
    assert rates(resolved(strategy, **options)) == pytest.approx([factor * rate for rate in RATES])


def test_users_factor_replaces_the_protocols() -> None:
    assert rates(resolved("naive", protocol_dropout=0.0, dropout=1.0)) == RATES


@pytest.mark.parametrize("strategy", ["naive", "ewc", "hat", "independent", "replay"])
def test_protocols_backbone_is_that_of_strategies_that_take_any(strategy: str) -> None:
    run = resolved(strategy, protocol_backbone="mlp")
    assert run.spec.options["backbone"] == "mlp" and run.backbone is not None and "two hidden" in run.backbone.summary
    assert "backbone" not in resolved(strategy).spec.options


def test_users_backbone_replaces_the_protocols() -> None:
    assert resolved("naive", protocol_backbone="mlp", backbone="resnet18").spec.options["backbone"] == "resnet18"


def test_strategies_of_one_family_do_not_take_the_protocols_backbone() -> None:
    assert all("backbone" not in resolved(name, protocol_backbone="mlp").spec.options for name in ("pnn", "seu"))


def test_unknown_backbone_of_a_protocol_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="mpl"):
        resolved("naive", protocol_backbone="mpl")
