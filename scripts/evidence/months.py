"""docs/evidence/months.md: ten classes of CIFAR-100 a month, of which each is learned by extending the run before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from scripts.evidence import months_runs as made
from scripts.evidence.formatting import names, table, template
from scripts.evidence.months_runs import AGAIN, MONTHS, STRATEGIES, Process, read_processes
from scripts.evidence.runs import EVIDENCE, ROOT, records
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import EVALUATION
from seu_bench.results.statistics import summarize

PAGE: Final = ROOT / "docs" / "evidence" / "months.md"
PICTURE: Final = ROOT / "docs" / "pictures" / "months.svg"
SET: Final = "months"
MB: Final = 1e6
CLASSES: Final = 10
#: Strategies without a network.
SIMPLE: Final = ("slda", "nearest_mean")
#: Colours of the strategies in the figure, in the order of :data:`STRATEGIES`; references are dashed.
_COLORS: Final = ("#888888", "#4477aa", "#ee6677", "#228833", "#ccbb44", "#aa3377", "#66ccee", "#000000")


@dataclass(frozen=True)
class Chain:
    """A strategy on one seed, month by month.

    Attributes:
        record: of the run that ends with the last month.
        processes: of the months.
        from_nothing: the process that learned all of them; ``None``: there was none.
        giving_back: those of the second and the last month whose allocator gave back what was freed.
    """

    record: Record
    processes: tuple[Process, ...]
    from_nothing: Process | None
    giving_back: tuple[Process, ...]

    @property
    def accuracies(self) -> list[float]:
        """On all classes so far, by month; every class has as many test images."""
        rows = self.record.accuracy_matrix
        return [sum(it or 0.0 for it in row) / (place + 1) for place, row in enumerate(rows)]

    @property
    def new(self) -> list[float]:
        """On the classes of the month that was learned last, among all so far."""
        return [row[place] or 0.0 for place, row in enumerate(self.record.accuracy_matrix)]

    def spent(self, what: str) -> list[float]:
        """Image passes, or another field of stages, of each month's learning."""
        stages = [it for it in self.record.stages if it.name != EVALUATION]
        return [sum(getattr(it, what) or 0 for it in stages if it.task == month) for month in range(MONTHS)]

    @property
    def evaluating(self) -> list[float]:
        """Seconds of evaluation, by month."""
        return [it.seconds for it in self.record.stages if it.name == EVALUATION]

    @property
    def has_stalled(self) -> bool:
        """Whether it ends the last month classifying its training images about as well as by naming one class."""
        ends = [it.accuracies[-1] for it in self.record.stages if it.task == MONTHS - 1 and it.accuracies]
        return self.record.reference is None and bool(ends) and (ends[0] or 0.0) < 1.2 / CLASSES

    @property
    def is_same(self) -> bool:
        """Whether the run from nothing ended with the same weights."""
        return self.from_nothing is not None and self.from_nothing.weights == self.processes[-1].weights


Chains = Mapping[str, Sequence[Chain]]


def read_chains(folder: Path = EVIDENCE) -> dict[str, list[Chain]]:
    """The chains that are whole, by strategy."""
    there = {it.run_id: it for it in records(folder / SET)}
    of_chain: dict[tuple[str, int], dict[str, list[Process]]] = {}
    for process in read_processes(folder / SET / made.PROCESSES):
        of_chain.setdefault((process.strategy, process.seed), {}).setdefault(process.kind, []).append(process)
    found: dict[str, list[Chain]] = {name: [] for name in STRATEGIES}
    for (name, _), kinds in of_chain.items():
        months, whole, giving = (kinds.get(kind, []) for kind in ("month", "from nothing", "giving back"))
        if len(months) == MONTHS and months[-1].run_id in there:
            chain = Chain(there[months[-1].run_id], tuple(months), whole[0] if whole else None, tuple(giving))
            found[name].append(chain)
    return {name: chains for name, chains in found.items() if chains}


def mean_of(chains: Sequence[Chain], values: Callable[[Chain], Sequence[float]]) -> list[float]:
    """By month, over seeds."""
    return [sum(of_month) / len(chains) for of_month in zip(*map(values, chains), strict=True)]


#: What the figure and the tables show of a chain, by month.
SHOWN: Final[dict[str, Callable[[Chain], Sequence[float]]]] = {
    "accuracy on all classes so far (%)": lambda it: [100 * value for value in it.accuracies],
    "accuracy on the new classes (%)": lambda it: [100 * value for value in it.new],
    "model and learner (MB)": lambda it: [(each.model_bytes + each.learner_bytes) / MB for each in it.processes],
    "processor seconds of the process": lambda it: [each.cpu_seconds for each in it.processes],
    "peak memory of the process (MB)": lambda it: [each.peak_bytes / MB for each in it.processes],
}
ACCURACY, NEW, SIZE, SECONDS, PEAK = SHOWN


def accuracy_table(chains: Chains) -> str:
    """What is known after the last month, the most accurate first."""
    lines = []
    for name in ranked(chains):
        own, known = chains[name], summarize([it.accuracies[-1] for it in chains[name]])
        spread = f" ± {100 * (known.high - known.mean):.1f}" if known is not None and known.high is not None else ""
        first, new = (mean_of(own, SHOWN[it]) for it in (ACCURACY, NEW))
        old = sum(100 * (it.record.accuracy_matrix[-1][0] or 0.0) for it in own) / len(own)
        told = f"`{name}`{' (reference)' if own[0].record.reference else ''}"
        numbers = f"{first[0]:.1f}", f"{first[-1]:.1f}{spread}", f"{old:.1f}", f"{sum(new) / MONTHS:.1f}"
        lines.append((told, str(len(own)), *numbers))
    headings = ("strategy", "seeds", "month 1 (%)", "all 100 classes (%)", "of these, month 1's (%)")
    return table([*headings, "new classes, mean of months (%)"], lines)


def cost_table(chains: Chains) -> str:
    """What the first extension and the last one took and left, in mean over seeds."""
    lines = []
    for name, own in chains.items():
        pairs = []
        for shown in (SIZE, SECONDS, PEAK):
            values = mean_of(own, SHOWN[shown])
            digits = 2 if shown == SIZE else 1 if shown == SECONDS else 0
            pairs.append(f"{values[1]:,.{digits}f}, {values[-1]:,.{digits}f}")
        lines.append((f"`{name}`", *pairs))
    return table(["strategy", SIZE, SECONDS, PEAK], lines)


def anew_table(chains: Chains) -> str:
    """Ten months extended beside a run of all months so far, from nothing, in each of them; of the first seed."""
    lines = []
    for name, own in chains.items():
        chain = own[0]
        row = []
        for what, form in (("image_passes", "{:,.0f}"), ("cpu_seconds", "{:,.1f}")):
            by_month = chain.spent(what)
            anew = sum(sum(by_month[:month]) for month in range(1, MONTHS + 1))
            row += [form.format(sum(by_month)), form.format(anew)]
        whole = chain.from_nothing
        row += [f"{sum(it.cpu_seconds for it in chain.processes):,.0f}"]
        row += ["-", "not run"] if whole is None else [f"{whole.cpu_seconds:,.0f}", "yes" if chain.is_same else "NO"]
        lines.append((f"`{name}`", *row))
    headings = ["strategy", "image passes", "anew each month", "processor seconds of learning", "anew each month"]
    return table([*headings, "ten processes (s)", "one run of all ten (s)", "same weights"], lines)


def ranked(chains: Chains) -> list[str]:
    """Names, the most accurate after the last month first."""
    return sorted(chains, key=lambda name: -mean_of(chains[name], lambda it: it.accuracies)[-1])


def memory_table(chains: Chains) -> str:
    """Peaks of the second month and the last one of the first seed, by an allocator that gives back what is freed."""
    lines = []
    for name, own in chains.items():
        if len(own[0].giving_back) == len(AGAIN):
            first, last = (it.peak_bytes / MB for it in own[0].giving_back)
            lines.append((f"`{name}`", f"{first:,.0f}", f"{last:,.0f}", f"{last - first:+,.0f}"))
    return table(["strategy", *(f"peak of month {it} (MB)" for it in AGAIN), "more (MB)"], lines)


def rendered() -> str:
    """The page as the published records have it."""
    chains = read_chains()
    test = CLASSES * made.PER_CLASS["test"] * 3 * 32 * 32 / MB
    plain = chains["naive"]
    learning, whole = mean_of(plain, lambda it: it.spent("cpu_seconds"))[1], mean_of(plain, SHOWN[SECONDS])[1]
    last = {name: mean_of(own, lambda it: it.accuracies)[-1] for name, own in chains.items()}
    return template("months.md.jinja").render(
        months=MONTHS,
        seeds=max(map(len, chains.values())),
        images=made.PER_CLASS,
        memory=made.MEMORY,
        test_mb=f"{test:.1f}",
        held_mb=f"{(MONTHS - 2) * test:.0f}",
        accuracies=accuracy_table(chains),
        costs=cost_table(chains),
        anew=anew_table(chains),
        order=[(f"`{name}`", f"{100 * last[name]:.1f}") for name in ranked(chains)],
        simple={name: names(it for it in ranked(chains) if last[it] < last[name]) for name in SIMPLE if name in last},
        held=memory_table(chains),
        giving=", ".join(f"`{key}={value}`" for key, value in made.GIVING.items()),
        evaluating=[f"{it:.1f}" for it in mean_of(chains["seu"], lambda it: it.evaluating)] if "seu" in chains else [],
        fixed=f"{whole - learning:.1f}",
        whole=f"{whole:.1f}",
        stuck=names(name for name, own in chains.items() if all(it.has_stalled for it in own)),
        same=names(name for name, own in chains.items() if own[0].is_same),
        other=names(name for name, own in chains.items() if own[0].from_nothing and not own[0].is_same),
        picture=f"../pictures/{PICTURE.name}",
        revision=", ".join(
            sorted({str(it.record.environment.git_revision)[:8] for own in chains.values() for it in own})
        ),
    )


def draw(folder: Path = EVIDENCE) -> None:
    """Accuracy, size, seconds and memory by month, in mean over seeds."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    chains = read_chains(folder)
    with matplotlib.rc_context({"svg.hashsalt": "seu-bench", "svg.fonttype": "none", "font.size": 9}):
        figure, axes = pyplot.subplots(2, 2, figsize=(8.4, 6), layout="constrained")
        for axis, shown in zip(axes.flat, (ACCURACY, SIZE, SECONDS, PEAK), strict=True):
            for name, color in zip(STRATEGIES, _COLORS, strict=True):
                if own := chains.get(name):
                    style = "--" if own[0].record.reference else "-"
                    axis.plot(range(1, MONTHS + 1), mean_of(own, SHOWN[shown]), style, color=color, label=name)
            axis.set(xlabel="month", ylabel=shown, xticks=range(1, MONTHS + 1))
            axis.set(yscale="log") if shown == SIZE else axis.set(ylim=(0, None))
        figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
        figure.savefig(PICTURE, metadata={"Date": None})
        pyplot.close(figure)
