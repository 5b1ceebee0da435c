"""Block-wise search by Q-learning, after Zhong et al., "Practical Block-wise Neural Network Architecture Generation",
CVPR 2018 (BlockQNN), on the extension units' search space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field, NonNegativeInt

from seu_bench import Register, hookimpl
from seu_bench.config import NetworkOptions, ScoringOptions
from seu_bench_kit import SearcherFactory, schedule_passes


class BlockwiseOptions(ScoringOptions, NetworkOptions):
    """The learning rule's options; the schedule's are those of the proxy."""

    removed: ClassVar[Mapping[str, Any]] = {
        **{"budget": "shared", "samples": None, "scratch_epochs": 12, "scratch_learning_rate": 1e-3},
        **{"mac_weight": 0.0, "density_weight": 0.0, "choose": "best_reward", "tie_break": "random"},
    }

    q_learning_rate: float = Field(0.01, gt=0, le=1, description="step of the Q-values")
    discount: float = Field(1.0, ge=0, le=1, description="weight of what follows a decision")
    initial_value: float = Field(0.5, description="Q-value of what was never tried")
    epsilon_first: float = Field(1.0, ge=0, le=1, description="share of random decisions at the beginning")
    epsilon_last: float = Field(0.1, ge=0, le=1, description="share of random decisions at the end")
    explore: float = Field(0.53, ge=0, le=1, description="share of the architectures that is tried at epsilon_first")
    replay: NonNegativeInt = Field(64, description="remembered architectures learned again after each new one")


@hookimpl
def register_searchers(register: Register[SearcherFactory]) -> None:
    """Offer ``blockwise``."""
    register(
        "blockwise",
        SearcherFactory(
            "tabular Q-learning over a unit's decisions, with replay and an epsilon-greedy schedule",
            options=BlockwiseOptions,
            build="seu_bench_blockwise.searcher:BlockwiseSearch",
            estimate_passes=schedule_passes,
        ),
    )
