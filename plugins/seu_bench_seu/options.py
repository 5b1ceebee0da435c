"""Options of SEU, its searcher and its creator: one for each choice on which the paper and its code disagree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from seu_bench.config import NetworkOptions, ScoringOptions, SelectingOptions, TaskInferenceOptions
from seu_bench.config.common_options import Cells, SpaceOptions


class MdlOptions(ScoringOptions):
    """Options shared by the MDL searcher and the MDL creator."""

    alpha: PositiveFloat = Field(0.01, description="step of the probabilities per reward or penalty")
    update: Literal["sampled", "all"] = Field(
        "sampled", description="which probabilities an epoch moves: the sampled ones (paper) or all (code)"
    )
    normalisation: Literal["sum", "softmax"] = Field(
        "sum", description="how probabilities are normalised: by their sum (paper's formula) or softmax (code)"
    )
    unsampled: Literal["still", "drift"] = Field(
        "still", description="whether momentum continues to move parameters that an epoch does not use"
    )
    tie_break: Literal["first", "random"] = Field("random", description="which of equal candidates is chosen")


class SearchOptions(MdlOptions, NetworkOptions):
    """Options of the MDL searcher."""


class CreationOptions(MdlOptions):
    """Options of the MDL creator."""

    old_unit_epochs: NonNegativeInt | None = Field(None, description="epoch record that old units start from")
    restore: Literal["best_valid", "last"] = Field(
        "best_valid", description="weights kept: those of the lowest loss on the second half, or the last"
    )


class AdaptOptions(CreationOptions):
    """Options of the creator ``adapt``."""

    rank: PositiveInt | None = Field(
        None, description="rank of an adapter's matrix, where that makes it smaller [default: full]"
    )


#: The genotype of the creator ``adapt``, of the largest module; a smaller one has a rank.
ADAPTER: Final = {"adapter": "1x1", "statistics": "own", "rank": None}


class SeuOptions(SelectingOptions, TaskInferenceOptions, SpaceOptions):
    """Options of SEU; the schedule's are those of the training stage."""

    removed: ClassVar[Mapping[str, Any]] = {"statistics": "frozen", "adaptation": "none"}

    preset: Literal["default", "paper_literal", "code"] = Field(
        "default", description="a consistent set of the choices below; options given besides it win"
    )
    cells: Cells | None = Field(None, description="cells of the super model")
    channels: PositiveInt | None = Field(None, description="initial channels of the super model")
    width: PositiveFloat = Field(1.0, description="factor of the protocol's initial channels, which are rounded")
    edges: Literal["top2", "all14"] = Field(
        "top2", description="edges of a cell: the two strongest per node (code), or all 14 (paper)"
    )
    cell_types: Literal[1, 2] = Field(2, description="one genotype for all cells (paper), or normal and reduction")
    stem: Literal["selectable", "shared"] = Field(
        "selectable", description="whether the first layer grows and is chosen like the others"
    )
    factorized_reduce_norm: bool = Field(True, description="whether FactorizedReduce applies its BatchNorm")
    warm_start: bool = Field(True, description="whether training starts from the weights of the creation stage")
    keep_start: bool = Field(
        False, description="whether weights may be kept that training begins with, if no epoch has a lower loss"
    )
    tie_weight_decay: bool = Field(
        False, description="whether search and creation use the training stage's weight decay (paper)"
    )
    genotype: str | None = Field(None, description="a published genotype for every task in place of the search")
    code_cells: Cells | None = Field(
        None, description="cells that the preset `code` uses where the published scripts differ from the paper"
    )

    @model_validator(mode="after")
    def _one_number_of_channels(self) -> Self:
        if self.channels is not None and self.width != 1:
            raise ValueError("channels gives a number and width a factor of the protocol's: leave out one of them")
        return self


#: What a literal preset sets for searcher and creator alike: samples are scored with the statistics that training left,
#: and of equal candidates the first is taken.
_LITERAL: dict[str, object] = {
    f"{part}.{option}": value
    for part in ("searcher", "creator")
    for option, value in (("recalibration_images", 0), ("tie_break", "first"))
}

#: What each preset sets; ``searcher.`` and ``creator.`` keys go to the components where these have such an option.
PRESETS: dict[str, dict[str, object]] = {
    "default": {},
    "paper_literal": {
        **_LITERAL,
        "edges": "all14",
        "cell_types": 1,
        "tie_weight_decay": True,
        "searcher.min_learning_rate": 0.0,
        "creator.min_learning_rate": 0.0,
        "creator.old_unit_epochs": 0,
    },
    "code": {
        **_LITERAL,
        "factorized_reduce_norm": False,
        "lr_schedule": "constant",
        "searcher.normalisation": "softmax",
        "searcher.update": "all",
        "creator.normalisation": "softmax",
        "creator.update": "all",
    },
}
