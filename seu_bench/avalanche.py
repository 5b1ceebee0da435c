"""Strategies for plain Avalanche scripts: any installed one, on any Avalanche benchmark of tasks; no run, no record."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from seu_bench.config.protocol import ProtocolSpec
from seu_bench.config.run import Request
from seu_bench.config.streams import Scenario
from seu_bench.data.planning import StreamPlan, TaskPlan
from seu_bench.engine.resolve import choose_strategy, require_scenario
from seu_bench.errors import OptionError, RequestError
from seu_bench.plugin.registry import Registry
from seu_bench.training.interfaces import StrategyContext

if TYPE_CHECKING:
    from seu_bench.training.stage import ProgressCallback


def make_strategy(
    strategy: str,
    benchmark: Any,
    *,
    device: str = "cpu",
    evaluator: Any = None,
    on_progress: ProgressCallback | None = None,
    **given: Any,
) -> Any:
    """Build a strategy for an Avalanche benchmark, with a head for each of its experiences, or one for all.

    It is an Avalanche strategy: ``train`` and ``eval`` take experiences and streams, its ``plugins`` may be added to.
    A stream may be evaluated whole: images of classes that were not seen yet are answered wrongly, those of a task that
    the model has no path for by its first class. That changes nothing of what is learned.

    Args:
        strategy: name of an installed strategy (``seu-bench list strategies``).
        benchmark: with a train stream and a test stream, whose experiences are the tasks in their order; images are
            tensors ``[C, H, W]`` of one shape. With a task label for each experience labels of each task begin at 0.
            Without task labels it is domain-incremental, where all have the same classes; otherwise class-incremental,
            with classes numbered through in the order in which experiences first have them.
        device: device to train on, e.g. ``cuda``.
        evaluator: Avalanche's ``EvaluationPlugin``; ``None``: a silent one.
        on_progress: called with the progress of every stage; ``None``: nobody is.
        given: ``searcher``, ``creator``, ``options``, ``seed``, ``precision`` and ``feature_cache``, as for
            :func:`seu_bench.run`. Options that are not given are as in the SEU paper: 50 epochs of training, 100 of
            search and of creation.

    Returns:
        The strategy, an ``avalanche.training.templates.SupervisedTemplate``, of which nothing is learned yet.

    Raises:
        UnknownNameError: there is no such strategy, searcher or creator.
        OptionError: an option is unknown or does not fit.
        RequestError: the benchmark's labels fit no scenario, or one that the strategy cannot learn, or it has images
            that the strategy cannot learn.

    Example:
        ::

            benchmark = SplitMNIST(n_experiences=5, return_task_id=True)
            strategy = seu_bench.make_strategy("seu", benchmark, options={"epochs": 10, "channels": 8})
            for experience in benchmark.train_stream:
                strategy.train(experience)
                strategy.eval(benchmark.test_stream[: experience.current_experience + 1])
    """
    registry, protocol, request = Registry(), ProtocolSpec(), Request(strategy=strategy, **given)
    takes = {"strategy", "searcher", "creator", "options", "seed", "precision", "feature_cache"}
    own = [key for key in request.options if key.startswith("benchmark.")]
    if own := [*own, *(request.model_fields_set - takes)]:
        what = f"{own[0]!r} is an option of runs and benchmarks of seu-bench, not of Avalanche's"
        raise OptionError(what, remedy="leave it out")
    chosen = choose_strategy(registry, request, protocol, request.options)
    plan = plan_of(benchmark)
    require_scenario(registry, request, chosen.options, plan.scenario, "the benchmark")
    context = StrategyContext(
        plan=plan,
        protocol=protocol,
        options=chosen.options,
        seed=request.seed,
        device=device,
        backbone=chosen.backbone,
        space=chosen.space,
        on_progress=on_progress,
        evaluator=evaluator,
        compute=request.compute,
        searcher=chosen.components.get("searcher"),
        creator=chosen.components.get("creator"),
    )
    return chosen.factory.build(context)


def plan_of(benchmark: Any) -> StreamPlan:
    """Return the shape of an Avalanche benchmark's stream.

    Raises:
        RequestError: the labels of its experiences fit no scenario, or they differ in the shape of their images, or
            have images that are no tensors.
    """
    train, test = list(benchmark.train_stream), list(benchmark.test_stream)
    valid = list(benchmark.streams["valid"]) if "valid" in benchmark.streams else []
    classes = [
        _labels(experience.dataset) | (_labels(test[place].dataset) if place < len(test) else set())
        for place, experience in enumerate(train)
    ]
    scenario = _scenario([tuple(getattr(experience, "task_labels", ())) or (0,) for experience in train], classes)
    shapes = [tuple(getattr(experience.dataset[0][0], "shape", ())) for experience in train]
    for place, shape in enumerate(shapes):
        if len(shape) != 3 or shape != shapes[0]:
            raise RequestError(
                f"the images of experience {place} are of shape {shape}, not all tensors [C, H, W] of one shape",
                remedy="give the benchmark transforms that resize, and end in torchvision.transforms.ToTensor()",
            )
    known = [0, *accumulate((1 + max(found) for found in classes), max)]
    tasks = [
        TaskPlan(
            name=f"experience {place}",
            num_classes=known[place + 1] - known[place] if scenario == "class" else 1 + max(classes[place]),
            num_train=len(train[place].dataset),
            num_valid=len(valid[place].dataset) if place < len(valid) else 0,
            num_test=len(test[place].dataset) if place < len(test) else 0,
            labels=tuple(sorted(classes[place]) if scenario == "class" else range(1 + max(classes[place]))),
        )
        for place in range(len(train))
    ]
    channels, height, width = map(int, shapes[0])
    return StreamPlan(channels, height, width, tuple(tasks), tuple(range(len(tasks))), scenario)


def _scenario(tasks: Sequence[tuple[int, ...]], classes: Sequence[set[int]]) -> Scenario:
    """The scenario of experiences with these task labels and classes."""
    if len(tasks) == 1 or (tasks and len(set(tasks)) == len(tasks)):
        return "task"
    if len(set(tasks)) == 1:
        if all(found == classes[0] for found in classes):
            return "domain"
        seen = [set().union(*classes[: place + 1]) for place in range(len(classes))]
        if all(found == set(range(len(found))) for found in seen):
            return "class"
    raise RequestError(
        f"the benchmark has {len(tasks)} experiences with {len(set(tasks))} different task labels, and classes "
        f"{', '.join(str(sorted(found)) for found in classes[:4])}{', ...' if len(classes) > 4 else ''}",
        remedy="task-incremental: give each experience a task label of its own (return_task_id=True, or "
        "avalanche.benchmarks.with_task_labels); class-incremental: number the classes from 0 in the order in which "
        "experiences first have them (class_ids_from_zero_from_first_exp=True); domain-incremental: give all the same "
        "classes",
    )


def _labels(dataset: Any) -> set[int]:
    """Of all images, which are read where the data set does not say its labels."""
    targets = getattr(dataset, "targets", None)
    return set(map(int, (dataset[index][1] for index in range(len(dataset))) if targets is None else targets))
