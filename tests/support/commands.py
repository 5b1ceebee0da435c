"""The command line as tests call it, and a stranger's package as pip installs it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

#: Options of SEU with which a run takes about a second.
SMALL_SEU = ("-o", "channels=2", "-o", "searcher.channels=2", "-o", "searcher.epochs=1", "-o", "creator.epochs=1")

#: A benchmark file of two tasks of a few images, ranked, over in no time.
FEW_IMAGES = """
name = "few"
default_protocol = "instant"

[stream]
kind = "classes"
dataset = "digits"
classes_per_task = 5

[protocols.instant]
images = { train = 16, valid = 8, test = 16 }
training = { epochs = 1, batch_size = 16 }
"""

#: A strategy of one linear layer and its head per task, which fails where its options say so.
TINY = """
from typing import Literal

from seu_bench import hookimpl
from seu_bench.config.protocol import ScheduleOptions


class TinyOptions(ScheduleOptions):
    fault: Literal["none", "build", "cost", "raise", "diverge", "interrupt"] = "none"
    task: int = 1


class TinyFactory:
    summary = "one linear layer"
    options = TinyOptions
    components = {}
    presets = {}

    def build(self, context):
        from torch import nn

        from seu_bench.models.backbone import BackboneModel
        from seu_bench.utils.seeding import RandomState, derive_seed
        from seu_bench.training.strategy import StagedStrategy

        plan, options = context.plan, context.options
        if options.fault == "build":
            raise LookupError("nothing to build with")

        class Tiny(StagedStrategy):
            def phases(self, task):
                if task.index == options.task and options.fault == "raise":
                    raise ZeroDivisionError("this strategy is broken")
                if task.index == options.task and options.fault == "interrupt":
                    raise KeyboardInterrupt
                if task.index == options.task and options.fault == "diverge":
                    nn.init.constant_(self.model.heads[task.index].weight, float("nan"))
                return super().phases(task)

        pixels = plan.channels * plan.height * plan.width
        with RandomState(derive_seed(context.seed, "model")).active():
            backbone = nn.Sequential(nn.Flatten(), nn.Linear(pixels, 8), nn.ReLU())
            model = BackboneModel(backbone, 8, plan.classes_per_task)
        return Tiny(
            model=model,
            schedule=options.applied_to(context.protocol.training),
            seed=context.seed,
            on_progress=context.on_progress,
            evaluator=context.evaluator,
            device=context.device,
        )

    def cost(self, context):
        from seu_bench.training import Cost, StageCost, evaluation_passes

        plan, options = context.plan, context.options
        if options.fault == "cost":
            raise LookupError("nothing to count with")
        pixels = plan.channels * plan.height * plan.width
        params = (8 * (pixels + 1) + 9 * sum(plan.classes_per_task),) * len(plan.tasks)
        epochs = options.applied_to(context.protocol.training).epochs
        sizes = enumerate((epochs * task.num_train, epochs * task.num_valid) for task in plan.tasks)
        stages = [StageCost("training", task, *passes) for task, passes in sizes]
        macs = tuple(8 * (pixels + width) for width in plan.classes_per_task)
        return Cost(params, params, macs, macs, (*stages, *evaluation_passes(plan)))


@hookimpl
def register_strategies(register):
    register("tiny", TinyFactory())
"""


@dataclass(frozen=True)
class Answer:
    """Result of a command: exit status, standard output and standard error."""

    status: int
    out: str
    err: str


Command: TypeAlias = Callable[..., Answer]
Install: TypeAlias = Callable[[str, Mapping[str, str], Mapping[str, str]], Path]


def folder_of_run(command: Command, *asked: object) -> Path:
    """The folder of the run that a command ``run`` makes."""
    answer = command("run", *asked)
    assert answer.status == 0, answer.err
    (record,) = [line.removeprefix("record: ") for line in answer.out.splitlines() if line.startswith("record: ")]
    return Path(record).parent


class RunFolders(dict[str, Path]):
    """The folder of a finished run by strategy; made when it is asked for first.

    Args:
        options: arguments of ``run`` by strategy, after ``shared``, which all get.
    """

    def __init__(self, command: Command, shared: Sequence[object], options: Mapping[str, Sequence[object]]) -> None:
        super().__init__()
        self._command, self._shared, self._options = command, shared, options

    def __missing__(self, strategy: str) -> Path:
        asked = (*self._shared, *self._options.get(strategy, ()))
        self[strategy] = folder_of_run(self._command, "--strategy", strategy, *asked)
        return self[strategy]


def write_package(folder: Path, package: str, points: Mapping[str, str], modules: Mapping[str, str]) -> Path:
    """Metadata of an installed package, in a folder of its own."""
    information = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "INSTALLER").write_text("pip\n")
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in points.items()]
    (information / "entry_points.txt").write_text("\n".join(["[seu_bench]", *lines, ""]))
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)
    return folder
