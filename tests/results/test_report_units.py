"""Figures of single configurations: units, paths, learning curves."""

from __future__ import annotations

from typing import Any

import pytest
from support.report_records import configuration, legend, published, runs, with_curves

from seu_bench.results.report.draw_learning import learning_curves
from seu_bench.results.report.draw_single import genotypes, paths
from seu_bench_kit.search_space import EDGES, OPERATIONS, Genotype, uniform_genotype

pytestmark = pytest.mark.usefixtures("report_settings")


class TestUnits:
    def test_every_edge(self) -> None:
        pictures = genotypes(configuration(*runs("seu")), most=3)
        assert len(pictures) == 3
        found = Genotype.from_dict((published("seu", 0).genotypes or ())[1])
        figure = pictures[1].draw()
        for axes, edges in zip(figure.axes, (found.normal, found.reduction), strict=True):
            ends = []
            for arc in axes.patches:
                path = arc.get_path()
                assert path.codes is not None
                along = path.vertices[path.codes != path.CLOSEPOLY][:, 0]
                ends.append((round(along.max()), round(along.min())))
            ends.sort()
            assert ends == sorted((edge.node, edge.source) for edge in edges)
            named = sorted(text.get_text() for text in axes.texts if text.get_text() in OPERATIONS)
            assert named == sorted(edge.operation for edge in edges)
            places = {text.get_position() for text in axes.texts if text.get_text() in OPERATIONS}
            assert len(places) == len(edges)  # no name upon another
        assert [axes.get_title(loc="left") for axes in figure.axes] == ["normal cell", "reduction cell"]
        for edge in found.normal:
            assert f"{edge.operation} of node {edge.source}" in pictures[1].alt

    def test_all_edges_and_one_kind(self) -> None:
        record = published("seu", 0).model_copy(
            update={"genotypes": (uniform_genotype("sep_conv_3x3", "all14").to_dict(), None)}
        )
        (picture,) = genotypes(configuration(record), most=9)
        (axes,) = picture.draw().axes
        assert sum(text.get_text() == "sep_conv_3x3" for text in axes.texts) == len(EDGES)

    @pytest.mark.parametrize("value", [{}, {"normal": 1}, {"normal": [[9, 9, "x"]], "reduction": []}])
    def test_what_is_no_genotype(self, value: dict[str, Any]) -> None:
        assert genotypes(configuration(published("seu", 0).model_copy(update={"genotypes": (value,)})), most=9) == []

    @pytest.mark.parametrize("strategy", ["seu", "ltg"])
    def test_paths(self, strategy: str) -> None:
        record = published(strategy, 0)
        picture = paths(configuration(record))
        assert picture is not None
        figure = picture.draw()
        assert record.paths is not None and record.unit_tasks is not None
        markers = {"s": "new", "o": "reuse", "D": "adapt"}
        for task, axes in enumerate(figure.axes):
            line, *units = axes.get_lines()
            assert list(line.get_ydata()) == list(record.paths[task])
            there = {
                (layer, unit)
                for layer, made in enumerate(record.unit_tasks)
                for unit, by in enumerate(made)
                if by <= task
            }
            assert {(int(u.get_xdata()[0]), int(u.get_ydata()[0])) for u in units} == there
            drawn = {(int(u.get_xdata()[0]), int(u.get_ydata()[0])): markers[str(u.get_marker())] for u in units}
            for layer, unit in enumerate(record.paths[task]):
                done = "new" if record.unit_tasks[layer][unit] == task else "reuse"
                if record.choices is not None:
                    done = record.choices[task][layer].split()[0]
                assert drawn[layer, unit] == done
        assert (figure.axes[0].get_ylabel(), figure.axes[0].get_xlabel()) == ("unit", "layer")
        assert ("taken and adapted" in legend(figure)) is (strategy == "ltg")
        assert f"task 4 uses units {record.paths[4][0]} " in picture.alt

    @pytest.mark.parametrize(
        ("found", "made"),
        [
            (((5,),), ((0,),)),
            (((0, 0),), ((0,),)),
            (((-1,),), ((0,),)),
            (((0,),) * 99, ((0,),)),
            (((0,),), ((0,) * 99,)),
        ],
    )
    def test_paths_that_cannot_be_drawn(self, found: Any, made: Any) -> None:
        record = published("seu", 0).model_copy(update={"paths": found, "unit_tasks": made})
        assert paths(configuration(record)) is None


class TestLearning:
    def test_lines(self) -> None:
        records = [with_curves(record, search=4, training=6) for record in runs("seu")]
        picture = learning_curves(configuration(*records))
        assert picture is not None
        figure = picture.draw()
        assert [axes.get_title() for axes in figure.axes] == ["search", "training", "", ""]
        assert [axes.get_ylabel() for axes in figure.axes] == ["loss (per image)", "", "accuracy (%)", ""]
        for axes, epochs in zip(figure.axes, (4, 6, 4, 6), strict=True):
            assert len(axes.get_lines()) == 5
            assert {tuple(line.get_xdata()) for line in axes.get_lines()} == {tuple(range(1, epochs + 1))}
        expected = [2.0 / (epoch + 1) + 0.01 for epoch in range(6)]
        assert figure.axes[1].get_lines()[0].get_ydata() == pytest.approx(expected)
        accuracies = [100 * (1 - loss / 4) for loss in expected]
        assert figure.axes[3].get_lines()[0].get_ydata() == pytest.approx(accuracies)
        assert len(legend(figure)) == 5
        assert f"{accuracies[-1]:.1f}" in picture.alt

    def test_order_and_single_epochs(self) -> None:
        """Stages come as a task has them, though the first task has not all; a single epoch is at a whole number."""
        records = [with_curves(record, search=4, creation=1, training=6) for record in runs("seu")]
        picture = learning_curves(configuration(*records))
        assert picture is not None
        axes = picture.draw().axes
        assert [panel.get_title() for panel in axes[:3]] == ["search", "creation", "training"]
        assert [panel.get_xlim() for panel in axes[3:]] == [(0.95, 4.05), (0.5, 1.5), (0.95, 6.05)]
        assert [tick for tick in axes[4].get_xticks() if 0.5 <= tick <= 1.5] == [1]

    def test_rewards_at_chance(self) -> None:
        """Their share is said for each kind of stage that has rewards, and nothing where none was measured."""
        records = [with_curves(record, search=4, training=6) for record in runs("seu")]
        measured = [
            record.model_copy(
                update={
                    "stages": tuple(
                        stage.model_copy(update={"chance_share": 0.25 if stage.name == "search" else None})
                        for stage in record.stages
                    )
                }
            )
            for record in records
        ]
        picture, plain = learning_curves(configuration(*measured)), learning_curves(configuration(*records))
        assert picture is not None and plain is not None
        assert picture.caption == plain.caption + " Rewards that guessing would reach: 25% in search."

    def test_records_without(self) -> None:
        assert learning_curves(configuration(*runs("seu"))) is None

    def test_some_seeds_have_none(self) -> None:
        """Then there is no mean over seeds."""
        assert learning_curves(configuration(with_curves(published("seu", 0), training=3), published("seu", 1))) is None
