"""Which pictures a report has: those that compare, of every group, then what single configurations found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from seu_bench.results.report.draw_accuracy import accuracy_curves, average_curve, original_against_retained
from seu_bench.results.report.draw_learning import learning_curves
from seu_bench.results.report.draw_matrix import heat_maps
from seu_bench.results.report.draw_size import accuracy_against_size
from seu_bench.results.report.draw_units import genotypes, paths
from seu_bench.results.report.paper import published_points
from seu_bench.results.report.picture import Configuration, Picture
from seu_bench.results.report.source import Group
from seu_bench.results.report.summary import number_of_tasks

#: A longer stream is no picture any more, and its matrices are larger than what a report should hold.
MOST_TASKS = 100
#: Pictures that compare the configurations of a group.
_COMPARING = 5
#: Groups that are read in full even where figures were not asked for.
_READ = 8


@dataclass(frozen=True)
class Limits:
    """How much a report shows, so that it opens whatever the number of records.

    Attributes:
        configurations: drawn in each group.
        figures: of all groups together.
        detailed: configurations of a group of which units, paths and learning curves are drawn, each.
        units: tasks of a configuration of which the unit is drawn.
        rows: of a leaderboard.
        runs: listed in a group.
    """

    configurations: int = 8
    figures: int = 30
    detailed: int = 2
    units: int = 10
    rows: int = 1000
    runs: int = 100

    @property
    def groups(self) -> int:
        """Groups whose records are read in full, for figures, the list of runs, and what the paper says."""
        return max(_READ, math.ceil(self.figures / _COMPARING))


@dataclass
class Plan:
    """The pictures of one group.

    Attributes:
        comparing: of all its configurations together.
        single: of one configuration each.
        notes: what is not drawn, and why.
    """

    group: Group
    comparing: list[Picture] = field(default_factory=list)
    single: list[Picture] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def pictures(self) -> list[Picture]:
        """All of them."""
        return [*self.comparing, *self.single]


def make_plans(groups: Sequence[Group], limits: Limits) -> list[Plan]:
    """A plan for each group, in their order.

    Where there are more figures than ``limits`` allow, those that compare come first, and the groups with the most
    records.
    """
    plans = [_plan(group, limits) for group in groups]
    left = limits.figures
    by_size = sorted(plans, key=lambda plan: -plan.group.records)
    for part in ("comparing", "single"):
        for plan in by_size:
            pictures: list[Picture] = getattr(plan, part)
            if len(pictures) > left:
                plan.notes.append(f"{len(pictures) - left} of this group's figures are left out: {_allowed(limits)}")
            setattr(plan, part, pictures[:left])
            left -= min(left, len(pictures))
    return plans


def _allowed(limits: Limits) -> str:
    how = "--figures changes that, --benchmark and --protocol choose groups"
    return f"a report has at most {limits.figures} figures ({how})"


def _plan(group: Group, limits: Limits) -> Plan:
    plan = Plan(group)
    if not group.is_drawn:
        plan.notes.append(f"this group has no figures: {_allowed(limits)}")
        return plan
    drawn = [c for c in group.drawn if max(number_of_tasks(run) for run in c.runs) <= MOST_TASKS]
    if len(drawn) < len(group.drawn):
        plan.notes.append(f"streams of more than {MOST_TASKS} tasks are not drawn")
    if group.missing:
        plan.notes.append(f"{group.missing} configurations are not drawn: their records went while this was made")
    if len(group.rows) > len(group.drawn) + group.missing:
        plan.notes.append(
            f"{len(drawn)} of {len(group.rows)} configurations are drawn: the best of each strategy, the paper's "
            "strategies first, then the next best (--top changes how many)"
        )
    drawn = [c for c in drawn if max(number_of_tasks(run) for run in c.runs) > 0]
    if not drawn:
        return plan
    plan.comparing = [
        average_curve(drawn),
        accuracy_against_size(drawn, published_points(group.benchmark, group.version, group.protocol)),
        accuracy_curves(drawn),
        original_against_retained(drawn),
        heat_maps(drawn),
    ]
    plan.single = _single(drawn, limits)
    return plan


def _single(drawn: Sequence[Configuration], limits: Limits) -> list[Picture]:
    """Learning curves, paths and units of some configurations each, those of a search first."""
    searched = [c for c in drawn if any(c.example.genotypes or ())]
    chosen = searched + [c for c in drawn if c not in searched]
    curves = [picture for c in chosen if (picture := learning_curves(c)) is not None][: limits.detailed + 2]
    found = [picture for c in chosen if (picture := paths(c)) is not None][: limits.detailed]
    units = [picture for c in searched[: limits.detailed] for picture in genotypes(c, limits.units)]
    return [*found, *units, *curves]
