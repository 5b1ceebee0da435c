"""Fields of a run, each declared once: type, default, limits and help.

The command line, :func:`seu_bench.run`, sweeps, jobs, records and verification all take them from here.
"""

from __future__ import annotations

import hashlib
import json
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    ValidationError,
    model_validator,
)
from pydantic.functional_validators import ModelWrapValidatorHandler

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.options import Frozen, flatten_options, format_errors
from seu_bench.config.protocol import ProtocolSpec
from seu_bench.config.tuned import Place
from seu_bench.errors import OptionError
from seu_bench.utils.reading import absolute
from seu_bench.utils.text import parse_bytes

#: Number format of learning: float32; TF32 in products; float32, cached features in bfloat16; bfloat16 by autocast.
Precision: TypeAlias = Literal["float32", "tf32", "bf16-features", "bf16"]
#: More threads are a slip of the fingers, and more than most systems start.
MOST_THREADS: Final = 1024
#: Images that accuracies are measured on.
Evaluation: TypeAlias = Literal["test", "validation"]


@dataclass(frozen=True)
class CommandLine:
    """Command-line form of a field, where ``--field-name`` is not all; an internal one is no option at all."""

    flags: tuple[str, ...] = ()
    metavar: str | None = None
    is_internal: bool = False


def _whole(value: Any) -> Any:
    """Convert NumPy's integers to Python's; ``True`` is passed on, to be refused."""
    try:
        return value if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return value


def _names(value: Any) -> Any:
    """Unique names of a list or of comma-separated text."""
    given = [value] if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(isinstance(part, str) for part in given):
        return value
    names = (name.strip() for part in given for name in part.split(","))
    return tuple(dict.fromkeys(name for name in names if name))


WholeNumber: TypeAlias = Annotated[int, Field(strict=True), BeforeValidator(_whole)]
Bytes: TypeAlias = Annotated[
    WholeNumber, BeforeValidator(lambda value: parse_bytes(value) if isinstance(value, str) else value)
]
Names: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_names)]
Paths: TypeAlias = Annotated[
    tuple[Annotated[Path, AfterValidator(absolute)], ...],
    BeforeValidator(lambda value: (value,) if isinstance(value, str | Path) else value),
]
_AS_TEXT: Final = BeforeValidator(lambda value: str(value) if isinstance(value, Path) else value)
OptionValues: TypeAlias = Annotated[
    dict[str, Any], BeforeValidator(lambda value: dict(flatten_options(value)) if isinstance(value, Mapping) else value)
]
_OR_NONE: Final = BeforeValidator(lambda value: {} if value is None else value)


#: What can be matched: parameters stored at the end, operations of learning, image passes of learning.
Budget: TypeAlias = Literal["params", "flops", "passes"]
#: For each the option that is chosen, the metric of records that is matched, and words for what is counted.
BUDGETS: Final[dict[Budget, tuple[str, str, str]]] = {
    "params": ("width", "params_total", "parameters"),
    "flops": ("epochs", "train_flops", "operations of learning"),
    "passes": ("epochs", "image_passes", "image passes of learning"),
}


class Matched(BaseModel):
    """How an option was chosen so that a budget, by its forecast, is that of other runs, whose mean is the target."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    budget: Budget
    run: str
    seeds: tuple[int, ...]
    target: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    value: Annotated[int, Field(ge=0, lt=2**63)]
    option: str
    chosen: Annotated[int | float, Field(gt=0, allow_inf_nan=False)]

    @property
    def ratio(self) -> float:
        """The run's own value over what was asked for."""
        return self.value / self.target

    def __str__(self) -> str:
        mean = f", mean of {len(self.seeds)} seeds" if len(self.seeds) > 1 else ""
        return (
            f"{self.option}={self.chosen:g}: {self.value:,} {BUDGETS[self.budget][2]}, {self.ratio:.4g} times the "
            f"{self.target:,.0f} of {self.run}{mean}"
        )


def parse_match(text: str) -> tuple[Budget, str]:
    """Read ``params=RUN`` as what is matched, and the run, or raise an OptionError."""
    name, _, run = (part.strip() for part in text.partition("="))
    for budget in BUDGETS:
        if name == budget and run:
            return budget, run
    remedy = f"write it as BUDGET=RUN, such as params=seu; budgets are: {', '.join(BUDGETS)}"
    raise OptionError(f"--match {text!r} names no budget and run", where="--match", remedy=remedy)


class ResultFields(Frozen):
    """Fields that decide the result as they stand; a run id covers those that are not at their defaults."""

    limit: WholeNumber | None = Field(
        None, ge=4, le=2**40, description="Maximum number of images per task and split; such runs are never ranked."
    )
    synthetic: StrictBool = Field(
        False, description="Replace each data set by made-up images of its shape; such runs are never ranked."
    )
    precision: Precision = Field(
        "float32",
        description="Number format of learning: tf32 (NVIDIA's cards), bf16 by autocast, or of cached features alone.",
    )
    threads: WholeNumber = Field(
        1, ge=1, le=MOST_THREADS, description="Threads to compute with; another number is another run, by its rounding."
    )
    evaluation: Evaluation = Field(
        "test",
        description="Images that accuracies are measured on. With validation test images are never read: half of the "
        "validation images is withheld from learning and measured on; such runs are never ranked.",
    )
    first_tasks: WholeNumber | None = Field(
        None, ge=1, description="Learn only so many tasks of the stream; such runs are never ranked."
    )
    attach: Annotated[Names, CommandLine(metavar="MODULE:CLASS")] = Field(
        (), description="A plugin of Avalanche to add to the strategy, or a metric to have recorded; may be repeated."
    )


class ExecutionFields(Frozen):
    """Fields that do not change the result, but by the benchmark file that is made of a folder."""

    plugin: Annotated[Paths, CommandLine(metavar="FILE")] = Field(
        (), description="File of Python with methods, or hooks, of your own; may be repeated."
    )
    data_root: Path | None = Field(
        None, description="Folder of data sets [default: $SEU_BENCH_DATA, or ~/.cache/seu-bench/data]."
    )
    classes_per_task: WholeNumber | None = Field(
        None, ge=1, description="Classes of each task, where the benchmark is a folder of class folders."
    )
    size: WholeNumber | None = Field(
        None,
        ge=1,
        le=4096,
        description="Height and width of the images of such a folder [default: their own if all have one of at most "
        "64, else 64].",
    )
    results: Path = Field(Path("results"), description="Folder of records and leaderboards.")
    device: str = Field("auto", description="cpu, cuda, cuda:1, ...; auto takes an accelerator if there is one.")
    checkpoint_every: Annotated[float | None, CommandLine(metavar="SECONDS")] = Field(
        None,
        ge=0,
        description="Minimum seconds between checkpoints; 0: after every epoch [default: for 2 % of the time].",
    )
    feature_cache: Annotated[Bytes | None, CommandLine(metavar="BYTES")] = Field(
        None,
        ge=0,
        description="Memory for outputs of frozen layers, such as 0, 500M or 2G [default: half of the free].",
    )
    compile: StrictBool = Field(False, description="Compile SEU's units for their training (see docs).")
    keep_weights: Annotated[StrictBool, CommandLine(("--no-weights",))] = Field(
        True, description="Keep no model of a finished run."
    )
    keep_learner: Annotated[StrictBool | None, CommandLine(("--keep-learner/--no-learner",))] = Field(
        None,
        description="Keep what a finished run needs to learn further tasks (seu-bench extend) [default: of data of "
        "your own, with the weights].",
    )
    match: Annotated[str | None, CommandLine(metavar="BUDGET=RUN")] = Field(
        None,
        description="Choose the width (params) or the epochs (flops, passes) so that the budget is that of RUN: a run "
        "id, a run's folder, or a configuration such as seu or seu+random+frugal, by the mean over its finished runs.",
    )
    accept_code: StrictBool = Field(
        False, description="Accept a run that other code of a plugin made: show it if it is finished, else resume it."
    )
    log: Annotated[Names, CommandLine(metavar="NAME[,NAME]")] = Field(
        (), description="Loggers that also write the run down (seu-bench list loggers); may be repeated."
    )
    log_options: Annotated[OptionValues, _OR_NONE, CommandLine(("--log-option",), "NAME.KEY=VALUE")] = Field(
        default_factory=dict, description="An option of a logger; may be repeated."
    )


@dataclass(frozen=True)
class ComputeConfig:
    """Settings of the stages' computation, as :class:`Request` has them."""

    precision: Precision = "float32"
    feature_cache: int | None = None
    compile: bool = False


class Request(ResultFields, ExecutionFields):
    """Everything that one run is asked for with; an OptionError says which field is unknown or does not fit.

    Example:
        ``Request(strategy="ewc", seed=3, options={"epochs": 3, "benchmark.stream.validation": 0.1})``
    """

    strategy: str = Field(
        "seu", description="Strategy that learns: a name (seu-bench list strategies), or module:Class of Avalanche's."
    )
    benchmark: str = Field(
        "split_digits",
        description="Benchmark to learn: a name, a TOML file, or a folder of class folders of images (see docs).",
    )
    searcher: str | None = Field(None, description="Extension-unit searcher [default: the strategy's].")
    creator: str | None = Field(None, description="Task-model creator [default: the strategy's].")
    protocol: str | None = Field(None, description="Schedule and sizes [default: the benchmark's].")
    seed: WholeNumber = Field(0, ge=0, le=2**32 - 1, description="Random seed.")
    options: Annotated[dict[str, Any], _OR_NONE, CommandLine(("-o", "--option"), "KEY=VALUE")] = Field(
        default_factory=dict,
        description="Option of the strategy, or searcher., creator., benchmark.KEY; may be repeated.",
    )
    tuned: Annotated[str | None, CommandLine(metavar="FILE|ID"), _AS_TEXT] = Field(
        None,
        description="Options that seu-bench tune chose, laid below --option: a file, its id, or a folder of files.",
    )
    matched: Annotated[Matched | None, CommandLine(is_internal=True)] = Field(
        None, description="How near the option chosen by match came."
    )
    restart: StrictBool = Field(False, description="Start over, even if the run is finished or could be resumed.")
    max_seconds: float | None = Field(
        None,
        gt=0,
        description="Stop at a checkpoint before so many seconds are over; the same command resumes the run.",
    )

    @model_validator(mode="wrap")
    @classmethod
    def _explain_errors(cls, values: Any, validate: ModelWrapValidatorHandler[Request]) -> Request:
        try:
            return validate(values)
        except ValidationError as error:
            place = error.errors(include_url=False)[0]["loc"]
            name = str(place[0]) if place else "run"
            remedy = f"the fields are: {', '.join(cls.model_fields)}"
            if field := cls.model_fields.get(name):
                remedy = f"{name}: {field.description}"
            raise OptionError("; ".join(format_errors(error, values, cls)), where=name, remedy=remedy) from None

    @property
    def compute(self) -> ComputeConfig:
        """Settings of the stages' computation."""
        return ComputeConfig(self.precision, self.feature_cache, self.compile)


#: Fields of a request that an extension of a run may be given: those that decide no result.
EXTENSION_FIELDS: Final = (
    *(name for name in ExecutionFields.model_fields if name != "match"),
    "restart",
    "max_seconds",
)


class RunSpec(ResultFields):
    """Everything that decides a run, resolved and validated; ``chosen`` are components that are not its own."""

    strategy: str
    benchmark: BenchmarkSpec
    protocol_name: str
    searcher: str | None = None
    creator: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    searcher_options: dict[str, Any] = Field(default_factory=dict)
    creator_options: dict[str, Any] = Field(default_factory=dict)
    seed: int = 0
    local_data: dict[str, str] = Field(default_factory=dict)
    chosen: tuple[str, ...] = Field((), exclude=True)

    @property
    def protocol(self) -> ProtocolSpec:
        """The protocol that is learned by."""
        return self.benchmark.protocols[self.protocol_name]

    @property
    def place(self) -> Place:
        """What it can be tuned for."""
        it = self.benchmark
        return it.name, it.version, self.protocol_name, self.strategy, self.searcher, self.creator, it.stream.scenario

    @property
    def configuration(self) -> str:
        """The strategy, with searcher and creator where they are not its own; files may be called by it."""
        return "-".join([self.strategy.replace(":", "."), *self.chosen])

    @property
    def run_id(self) -> str:
        """A readable slug and a hash of what determines the result (not of the device, folders or versions)."""
        # Omitted at their defaults, like options: a later version's new field does not make an old run another one.
        fields = ResultFields.model_fields.items()
        always = {"limit", "synthetic"}  # since the first version
        at_default = {name for name, field in fields if getattr(self, name) == field.default} - always
        decisive = self.model_dump(mode="json", exclude={"benchmark", *at_default}) | {
            "benchmark": self.benchmark.identity(),
            "protocol": self._protocol_identity(),
        }
        digest = hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()[:10]
        told = {
            f"limit{self.limit}": self.limit,
            "synthetic": self.synthetic,
            self.precision: self.precision != "float32",
            f"threads{self.threads}": self.threads != 1,
            self.evaluation: self.evaluation != "test",
            f"first{self.first_tasks}": self.first_tasks,
            "attached": self.attach,
        }
        parts = [self.benchmark.name_in_scenario, self.protocol_name, self.configuration]
        slug = "-".join([*parts, *filter(told.get, told)])[:150]  # a folder's name; the hash tells what is cut off
        return f"{slug}-seed{self.seed}-{digest}"

    def _protocol_identity(self) -> dict[str, Any]:
        """Values of the protocol that decide a run."""
        # Options by strategy, searcher and creator, and the backbone, are among this run's own where they concern it;
        # keys of the stream are among the benchmark's.
        texts_and_options = {"summary", "ranked", "memory", "stream", "strategies", "searchers", "creators", "tuned"}
        identity = self.protocol.model_dump(mode="json", exclude={*texts_and_options, "model"})
        images = {key: it for key, it in identity["images"].items() if it is not None or not key.endswith("per_class")}
        model = self.protocol.model
        later = {"backbone", *(["dropout"] if model.dropout == 1.0 else [])}
        return identity | {"images": images, "model": model.model_dump(mode="json", exclude=later)}
