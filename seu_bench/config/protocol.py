"""Protocols: schedules, sizes and numbers of images that a benchmark is learned with."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeAlias, TypeVar

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from seu_bench.config.options import Frozen, Identified, Options
from seu_bench.config.toml_file import OwnPath

#: The rates of the AlexNet variant reach .5, which no factor may bring to 1.
DropoutFactor: TypeAlias = Annotated[float, Field(ge=0, lt=2)]


#: An epoch by its number, or by its share of all.
Milestones: TypeAlias = tuple[PositiveInt | Annotated[float, Field(gt=0, lt=1)], ...]
OptimizerName: TypeAlias = Literal["sgd", "adam", "adamw"]
#: Keys of a schedule that can be others in the first task of a stream.
FIRST: Final = ("epochs", "milestones", "weight_decay")


class Schedule(Identified):
    """Optimisation of one stage: SGD, its learning rate annealed by a cosine over the epochs (paper, section III).

    Where there are ``milestones``, the rate is multiplied by ``gamma`` after so many epochs, or after such shares of
    them, and else constant. It rises linearly over ``warmup_epochs`` before. ``momentum`` is the first of Adam's betas.
    """

    later: ClassVar[frozenset[str]] = frozenset({"optimizer", "milestones", "gamma", "warmup_epochs"})

    epochs: PositiveInt = 50
    batch_size: PositiveInt = 128
    learning_rate: PositiveFloat = 0.025
    min_learning_rate: NonNegativeFloat = 0.0
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    weight_decay: NonNegativeFloat = 3e-4
    clip_norm: NonNegativeFloat | None = 5.0  # 0: gradients are not clipped
    optimizer: OptimizerName = "sgd"
    milestones: Milestones = ()
    gamma: PositiveFloat = 0.1
    warmup_epochs: NonNegativeInt = 0

    def of_task(self, task: int) -> Schedule:
        """The schedule of a task by its 0-based index."""
        return self

    def of_epochs(self, epochs: int) -> Self:
        """The same over so many epochs, of which milestones keep their shares."""
        milestones = tuple(it if it < 1 else it / self.epochs for it in self.milestones)
        return self.model_copy(update={"epochs": epochs, "milestones": milestones})


class TrainingSchedule(Schedule):
    """Schedule of the training of tasks; keys ``first_...`` replace others in the first task."""

    later: ClassVar[frozenset[str]] = Schedule.later | {f"first_{key}" for key in FIRST}

    first_epochs: PositiveInt | None = None
    first_milestones: Milestones | None = None
    first_weight_decay: NonNegativeFloat | None = None

    def of_task(self, task: int) -> Schedule:
        """The schedule of a task by its 0-based index, without keys ``first_...``."""
        own = {key: value for key in FIRST if (value := getattr(self, f"first_{key}")) is not None}
        if task or not own:
            return self
        return self.model_copy(update={**own, **{f"first_{key}": None for key in FIRST}})


class SearchSchedule(Schedule):
    """Schedule of the search for an extension unit on a small proxy network of some cells and initial channels."""

    epochs: PositiveInt = 100
    batch_size: PositiveInt = 512
    min_learning_rate: NonNegativeFloat = 1e-3
    cells: Annotated[int, Field(ge=3)] = 4
    channels: PositiveInt = 16


class CreationSchedule(Schedule):
    """Schedule of the choice of a unit in each layer; ``old_unit_epochs`` is the epoch count of old units at first."""

    epochs: PositiveInt = 100
    min_learning_rate: NonNegativeFloat = 1e-3
    old_unit_epochs: NonNegativeInt = 30


ScheduleT = TypeVar("ScheduleT", bound=Schedule)


class ScheduleOptions(Options):
    """Options of a stage that trains: parts of the protocol's schedule that a user may replace.

    Example:
        ``schedule = options.applied_to(context.protocol.training)``
    """

    epochs: PositiveInt | None = Field(None, description="epochs of the stage")
    batch_size: PositiveInt | None = Field(None, description="images per training batch")
    learning_rate: PositiveFloat | None = Field(None, description="learning rate of the first epoch")
    min_learning_rate: NonNegativeFloat | None = Field(None, description="where the cosine schedule ends")
    momentum: Annotated[float, Field(ge=0, lt=1)] | None = Field(None, description="momentum of SGD")
    weight_decay: NonNegativeFloat | None = Field(None, description="weight decay of SGD")
    clip_norm: NonNegativeFloat | None = Field(None, description="largest norm of the gradient; 0: it is not clipped")

    def applied_to(self, schedule: ScheduleT) -> ScheduleT:
        """A copy of ``schedule`` with every value that is set here in place of its own."""
        return schedule.model_copy(update=self.model_dump(include=set(type(schedule).model_fields), exclude_none=True))


class ModelSize(Frozen):
    """Networks: cells and initial channels of the super model, and what fixed backbones are like by default."""

    cells: Annotated[int, Field(ge=3)] = 6
    channels: PositiveInt = 36
    backbone: str | None = None
    width: PositiveFloat = Field(1.0, description="factor of the hidden widths of fixed backbones")
    dropout: DropoutFactor = Field(1.0, description="factor of the dropout rates of fixed backbones")


class ImageLimits(Frozen):
    """Largest numbers of images per task and split, and of each class of a task; ``None`` is all of them."""

    train: PositiveInt | None = None
    valid: PositiveInt | None = None
    test: PositiveInt | None = None
    train_per_class: PositiveInt | None = None
    valid_per_class: PositiveInt | None = None
    test_per_class: PositiveInt | None = None

    @model_validator(mode="after")
    def _check_pair(self) -> Self:
        if (self.train_per_class is None) != (self.valid_per_class is None):
            raise ValueError("train_per_class and valid_per_class go together: give both, or none")
        return self

    @property
    def per_class(self) -> tuple[int, int] | None:
        """Most training and validation images of each class of a task."""
        if self.train_per_class is None or self.valid_per_class is None:
            return None
        return self.train_per_class, self.valid_per_class

    def lowered_to(self, limit: int | None) -> ImageLimits:
        """These limits, none of them of a task above ``limit``."""
        if limit is None:
            return self
        lowered = {name: min(getattr(self, name) or limit, limit) for name in ("train", "valid", "test")}
        return self.model_copy(update=lowered)


class ProtocolSpec(Frozen):
    """Budget of a run: schedules, sizes of networks and numbers of images.

    Attributes:
        ranked: whether its records enter leaderboards.
        memory: images that a strategy with an option of this name keeps; ``None``: as many as by its default.
        stream: keys of the benchmark's ``[stream]`` that are others by this protocol.
        strategies, searchers, creators: values of their options, by name.
        tuned: files of ``seu-bench tune`` laid over these, by strategy, or by strategy, searcher and creator joined
            by ``-`` where they are not its own; relative paths start from the benchmark file.
    """

    summary: str = ""
    ranked: bool = True
    memory: PositiveInt | None = None
    images: ImageLimits = ImageLimits()
    eval_batch_size: PositiveInt = 512
    stream: dict[str, Any] = Field(default_factory=dict)
    training: TrainingSchedule = TrainingSchedule()
    search: SearchSchedule = SearchSchedule()
    creation: CreationSchedule = CreationSchedule()
    model: ModelSize = ModelSize()
    strategies: dict[str, dict[str, Any]] = Field(default_factory=dict)
    searchers: dict[str, dict[str, Any]] = Field(default_factory=dict)
    creators: dict[str, dict[str, Any]] = Field(default_factory=dict)
    tuned: dict[str, OwnPath] = Field(default_factory=dict)
