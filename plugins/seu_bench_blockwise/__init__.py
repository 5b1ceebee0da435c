"""Block-wise search by Q-learning, after Zhong et al., "Practical Block-wise Neural Network Architecture Generation",
CVPR 2018 (BlockQNN), on the extension units' search space."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from seu_bench import Register, hookimpl
from seu_bench.config import NetworkOptions, ScoringOptions, SearchSchedule
from seu_bench.plugin.registration import Deferred
from seu_bench_kit import SearcherFactory, SearchTask, half_passes, recalibration_passes, schedule_passes


class BlockwiseOptions(ScoringOptions, NetworkOptions):
    """The learning rule's options; the schedule's are those of the proxy in the mode ``shared``."""

    budget: Literal["shared", "scratch"] = Field(
        "shared", description="an epoch on shared weights per architecture, or a training of its own for each"
    )
    samples: PositiveInt | None = Field(
        None, description="architectures tried from scratch; as many as the schedule has epochs if absent"
    )
    scratch_epochs: PositiveInt = Field(12, description="epochs of each training from scratch, stopped early")
    scratch_learning_rate: PositiveFloat = Field(
        1e-3, description="learning rate of Adam from scratch; a fifth of it after every 5 epochs"
    )
    q_learning_rate: float = Field(0.01, gt=0, le=1, description="step of the Q-values")
    discount: float = Field(1.0, ge=0, le=1, description="weight of what follows a decision")
    initial_value: float = Field(0.5, description="Q-value of what was never tried")
    epsilon_first: float = Field(1.0, ge=0, le=1, description="share of random decisions at the beginning")
    epsilon_last: float = Field(0.1, ge=0, le=1, description="share of random decisions at the end")
    explore: float = Field(0.53, ge=0, le=1, description="share of the architectures that is tried at epsilon_first")
    replay: NonNegativeInt = Field(64, description="remembered architectures learned again after each new one")
    mac_weight: NonNegativeFloat = Field(
        0.0, description="reward lost per natural logarithm of the network's multiply-accumulates in millions"
    )
    density_weight: NonNegativeFloat = Field(
        0.0, description="reward lost per natural logarithm of the unit's edges per node"
    )
    choose: Literal["best_reward", "greedy"] = Field(
        "best_reward", description="the architecture taken: that of the best reward, or the best by the Q-values"
    )
    tie_break: Literal["first", "random"] = Field("random", description="which of equal decisions is taken")


def build_search(options: BlockwiseOptions, task: SearchTask) -> Any:
    """Make the search of a task with the budget that the options ask for."""
    stage = "ScratchSearch" if options.budget == "scratch" else "SharedSearch"
    return Deferred(f"seu_bench_blockwise.searcher:{stage}")(options, task)


def estimate_passes(options: BlockwiseOptions, schedule: SearchSchedule, train_images: int) -> tuple[int, int]:
    """Half of the images train in every epoch; statistics are recalibrated and the other half is scored once per
    architecture."""
    if options.budget == "shared":
        return schedule_passes(options, schedule, train_images)
    applied = options.applied_to(schedule)
    samples = options.samples or applied.epochs
    train, score = half_passes(samples, train_images)
    recalibrate = recalibration_passes(options.recalibration_images, train_images // 2, applied.batch_size)
    return train * options.scratch_epochs, score + samples * recalibrate


@hookimpl
def register_searchers(register: Register[SearcherFactory]) -> None:
    """Offer ``blockwise``."""
    register(
        "blockwise",
        SearcherFactory(
            "tabular Q-learning over a unit's decisions, with replay and an epsilon-greedy schedule",
            options=BlockwiseOptions,
            build=build_search,
            estimate_passes=estimate_passes,
        ),
    )
