"""Progressive networks: learning, forgetting nothing, and states."""

from __future__ import annotations

from support.plugins.pnn import (
    WIDTH,
    Variant,
    both,
    stream,
    training,
)
from support.tiny import (
    all_threads,
    build,
    learn,
    one_thread,
    same,
    weights,
)

from seu_bench.models.sizes import count_parameters

setup_module, teardown_module = one_thread, all_threads


# --- learning ---------------------------------------------------------------------------------------------------------


def test_a_column_does_not_depend_on_the_ones_before() -> None:
    """A column's first weights hang on the seed and the task, not on how long earlier tasks were learned."""
    found = []
    for epochs in (1, 2):
        strategy = build(stream(), "pnn", width=WIDTH, epochs=epochs)
        learn(stream(), strategy, tasks=1)
        training(strategy, 1)
        found.append(weights(strategy.model.column(1)))
    assert same(found[0], found[1])


# --- states -----------------------------------------------------------------------------------------------------------


@both
def test_state_holds_what_trains(variant: Variant) -> None:
    """Weights, momentum and best weights are those of the new column alone."""
    strategy = build(stream(), "pnn", width=WIDTH, variant=variant)
    learn(stream(), strategy, tasks=2)
    stage = training(strategy, 2)
    stage.advance()
    column = strategy.model.column(2)
    trained = count_parameters(column) - (count_parameters(column.head_lateral) if variant == "compat" else 0)
    state = stage.get_extra_state()
    momenta = [entry["momentum_buffer"] for entry in state["optimizer"]["state"].values()]
    for tensors in (state["weights"].values(), state["best"]["kept"].values(), momenta):
        assert sum(tensor.numel() for tensor in tensors) == trained
