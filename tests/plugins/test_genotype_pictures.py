"""``seu-bench genotypes``: pictures of the genotypes of any space, where nothing lies on anything else."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from support.broken_spaces import EXAMPLE
from support.commands import SMALL_SEU, Command
from support.tiny import registry

from seu_bench_genotypes.pictures import place, render

SMALL = ("--protocol", "smoke", "--limit", 12, "--device", "cpu", "-o", "epochs=1")
TASKS = ("-o", "benchmark.stream.classes_per_task=5")
UNITS = (*SMALL_SEU, "-o", "edges=all14", "-o", "cell_types=1")


def texts(picture: bytes) -> list[str]:
    """All texts of an SVG."""
    return [it.text for it in ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text") if it.text]


@pytest.mark.parametrize("name", ["darts_cell", "mbconv", "dense"])
def test_every_space_is_drawn(name: str) -> None:
    """Each arrow's operation and each node is there, in every format; the same bytes each time."""
    space: Any = registry().spaces.find(name).factory.build()
    graphs = space.draw(space.random_genotype(random.Random(0).randrange))
    found = texts(render(graphs, "svg"))
    wanted = [arrow.operation for arrows in graphs.values() for arrow in arrows if arrow.operation]
    nodes = [node for arrows in graphs.values() for node in {it for arrow in arrows for it in arrow[:2]}]
    assert sorted(found) == sorted([*wanted, *nodes, *graphs])
    for form, magic in (("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")):
        picture = render(graphs, form)
        assert picture.startswith(magic) and picture == render(graphs, form)


@pytest.mark.parametrize("seed", range(20))
def test_no_text_lies_on_another(seed: int) -> None:
    """Of the paper's cell."""
    space: Any = registry().spaces.find("darts_cell").factory.build()
    for arrows in space.draw(space.random_genotype(random.Random(seed).randrange)).values():
        for one, other in itertools.combinations(place(arrows)[0], 2):
            assert one.y != other.y or one.right < other.x or other.right < one.x


def test_genotypes_of_a_run(command: Command, tmp_path: Path) -> None:
    """All tasks by default, or one; whatever cannot be drawn is refused, and nothing is written."""
    run = ("run", "-q", *SMALL, *TASKS, *UNITS, "--results", tmp_path)
    given = command(*run).out.strip(), "--results", tmp_path
    for task, titles in (((), {"normal, task 0", "normal, task 1"}), (("--task", 1), {"normal, task 1"})):
        path = tmp_path / "cells.svg"
        answer = command("genotypes", *given, *task, "--output", path)
        assert (answer.status, answer.out) == (0, f"{path}\n"), answer.err
        assert {it for it in texts(path.read_bytes()) if it.startswith("normal")} == titles
    refused = {("--task", 2): "no genotype of task 2", ("--output", tmp_path / "cells.gif"): ".svg, .pdf or .png"}
    before = sorted(tmp_path.iterdir())
    for options, said in refused.items():
        answer = command("genotypes", *given, *options)
        assert answer.status == 2 and said in answer.err, answer.err
    naive = command("run", "-q", *SMALL, *TASKS, "--strategy", "linear", "--results", tmp_path).out.strip()
    answer = command("genotypes", naive, "--results", tmp_path)
    assert answer.status == 2 and "found no genotype" in answer.err
    assert sorted(tmp_path.iterdir()) == before


def test_space_of_a_file(command: Command, tmp_path: Path) -> None:
    """The example of the tutorial."""
    plugin = ("--plugin", EXAMPLE, "--results", tmp_path)
    answer = command("run", "-q", *SMALL, *TASKS, *SMALL_SEU, *plugin, "-o", "space=residual")
    assert answer.status == 0, answer.err
    path = tmp_path / "units.svg"
    assert command("genotypes", answer.out.strip(), *plugin, "-o", path).status == 0
    assert any("activation" in it for it in texts(path.read_bytes()))
    answer = command("genotypes", answer.out.strip(), "--results", tmp_path, "-o", path)
    assert answer.status == 2 and "residual" in answer.err
