"""The vocabulary of units: sizes in closed form and as built, plans of cells, genotypes from tables."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from support.closed_form import unit_parameters
from support.tiny import image_shape

from seu_bench.models.sizes import count_parameters
from seu_bench_kit.cells import CellSpace
from seu_bench_kit.genotypes import EDGES, GENOTYPES, OPERATIONS, Edge, Genotype, uniform_genotype
from seu_bench_kit.networks import ProxyNetwork
from seu_bench_kit.search_space import cell_plans
from seu_bench_seu.super_model import SuperModel

#: Cells and image channels of the columns of the specification's table (section 5).
SHAPES = ((6, 3), (4, 3), (5, 1))

NAMED = {
    "darts_v1": (597_996, 457_380, 567_324),
    "darts_v2": (629_676, 481_392, 597_312),
    "mdenas_mixture": (657_108, 536_040, 630_360),
    "mdenas_pmnist": (524_556, 429_948, 504_036),
}
UNIFORM = {
    "none": (281_196, 217_260, 267_444),
    "max_pool_3x3": (281_196, 217_260, 267_444),
    "avg_pool_3x3": (281_196, 217_260, 267_444),
    "skip_connect": (492_012, 428_076, 478_260),
    "sep_conv_3x3": (1_240_812, 1_054_188, 1_199_988),
    "sep_conv_5x5": (1_369_836, 1_155_564, 1_319_796),
    "dil_conv_3x3": (761_004, 635_724, 733_716),
    "dil_conv_5x5": (825_516, 686_412, 793_620),
}
ALL14_SEP5 = (2_186_316, 1_859_292, 2_109_060)

COLUMNS = [
    *((GENOTYPES[name], "top2", counts) for name, counts in NAMED.items()),
    *((uniform_genotype(name), "top2", counts) for name, counts in UNIFORM.items()),
    (uniform_genotype("sep_conv_5x5", "all14"), "all14", ALL14_SEP5),
]
IDS = [*NAMED, *UNIFORM, "all14"]

TableOf = NDArray[np.float64]


def stem_parameters(image_channels: int) -> int:
    """A 3x3 convolution to 3 * 36 channels and its BatchNorm."""
    return 27 * image_channels * 36 + 2 * 3 * 36


def closed_form(genotype: Genotype, cells: int, image_channels: int) -> int:
    units = sum(unit_parameters(genotype, plan) for plan in cell_plans(cells, 36))
    return stem_parameters(image_channels) + units


def built(genotype: Genotype, edges: Any, cells: int, image_channels: int, classes: tuple[int, ...]) -> SuperModel:
    with torch.device("meta"):
        model = SuperModel(image_shape(image_channels), classes, cells, 36, CellSpace(edges))
        model.expand(genotype, 0)
    return model


@pytest.mark.parametrize(("genotype", "edges", "counts"), COLUMNS, ids=IDS)
def test_column_has_the_published_size(
    genotype: Genotype, edges: Literal["top2", "all14"], counts: tuple[int, ...]
) -> None:
    """A column of units has the size of the specification's table, in closed form and as modules."""
    assert tuple(closed_form(genotype, *shape) for shape in SHAPES) == counts
    for shape, count in zip(SHAPES, counts, strict=True):
        model = built(genotype, edges, *shape, (2,))
        assert count_parameters(model.layers) == count


def test_cells_have_the_published_sizes() -> None:
    """Each cell of two published genotypes has the size of the specification, at 6 cells."""
    expected = {
        "darts_v1": [24_840, 26_136, 21_024, 91_152, 83_520, 348_192],
        "mdenas_mixture": [20_916, 22_212, 52_056, 75_528, 197_424, 285_840],
    }
    for name, counts in expected.items():
        assert [unit_parameters(GENOTYPES[name], plan) for plan in cell_plans(6, 36)] == counts
        layers = built(GENOTYPES[name], "top2", 6, 3, (2,)).layers
        assert [count_parameters(layer) for layer in layers] == [stem_parameters(3), *counts]


def test_proxy_network_has_the_published_size() -> None:
    """The search net of 4 cells and 16 channels has the size of the authors' own."""
    with torch.device("meta"):
        assert count_parameters(ProxyNetwork(image_shape(3), 2, 4, 16, CellSpace())) == 1_131_826
        assert count_parameters(ProxyNetwork(image_shape(1), 10, 4, 16, CellSpace())) == 1_133_018


def test_channel_plans() -> None:
    """Channels in and out, reductions and halved older inputs stand where the specification has them."""
    normal, reduces, after = (False, False), (True, False), (False, True)
    rows = {
        (6, 36): [
            *((108, 108, 36, *normal), (108, 144, 36, *normal), (144, 144, 72, *reduces)),
            *((144, 288, 72, *after), (288, 288, 144, *reduces), (288, 576, 144, *after)),
        ],
        (5, 36): [
            *((108, 108, 36, *normal), (108, 144, 72, *reduces), (144, 288, 72, *after)),
            *((288, 288, 144, *reduces), (288, 576, 144, *after)),
        ],
        (4, 36): [
            *((108, 108, 36, *normal), (108, 144, 72, *reduces), (144, 288, 144, True, True)),
            (288, 576, 144, *after),
        ],
        (4, 16): [
            *((48, 48, 16, *normal), (48, 64, 32, *reduces), (64, 128, 64, True, True)),
            (128, 256, 64, *after),
        ],
    }
    for (cells, channels), expected in rows.items():
        plans = cell_plans(cells, channels)
        found = [(p.older, p.newer, p.channels, p.reduction, p.after_reduction) for p in plans]
        assert found == expected
        assert [plan.output for plan in plans] == [4 * row[2] for row in expected]
        assert [plan.kind for plan in plans] == ["reduction" if row[3] else "normal" for row in expected]


def table(*cells: tuple[int, int, str, float], none: float = 0.0) -> TableOf:
    """A probability table that is ``none`` in the column of that operation and 0 but for the given cells."""
    values = np.zeros((14, 8))
    values[:, 0] = none
    for node, source, operation, value in cells:
        values[EDGES.index((node, source)), OPERATIONS.index(operation)] = value
    return values


def edges_of(text: str) -> tuple[Edge, ...]:
    parts = [word.split(":") for word in text.split()]
    return tuple(Edge(int(node), int(source), operation) for node, source, operation in parts)


NORMAL = table(
    (2, 0, "sep_conv_5x5", 0.3),
    (2, 1, "skip_connect", 0.2),
    (3, 0, "max_pool_3x3", 0.3),
    (3, 1, "sep_conv_3x3", 0.4),
    (3, 2, "sep_conv_5x5", 0.5),
    (4, 1, "dil_conv_3x3", 0.2),
    (4, 1, "dil_conv_5x5", 0.1),
    (5, 4, "avg_pool_3x3", 0.6),
    (5, 0, "dil_conv_5x5", 0.5),
    (5, 2, "skip_connect", 0.4),
    none=0.9,
)
NORMAL_EDGES = edges_of(
    "2:0:sep_conv_5x5 2:1:skip_connect 3:1:sep_conv_3x3 3:2:sep_conv_5x5 "
    "4:0:max_pool_3x3 4:1:dil_conv_3x3 5:0:dil_conv_5x5 5:4:avg_pool_3x3"
)
# Nothing but ties: the first two inputs, and the first operation that is not `none`.
TIED_EDGES = tuple(Edge(node, source, "max_pool_3x3") for node in range(2, 6) for source in (0, 1))


def test_top2_keeps_the_two_strongest_edges_and_never_none() -> None:
    """Strength is the best probability besides `none`; the first of equal edges and of equal operations wins."""
    found = CellSpace().derive([*NORMAL, *table(none=0.9)])
    assert found.normal == NORMAL_EDGES
    assert found.reduction == TIED_EDGES


def test_all14_keeps_every_edge_and_none_may_win() -> None:
    """The paper's rule: the best operation on each edge, `none` among them, the first of equal ones."""
    found = CellSpace("all14").derive([*NORMAL, *table((4, 3, "sep_conv_3x3", 0.1))])
    assert found.normal == tuple(Edge(node, source, "none") for node, source in EDGES)
    assert found.reduction == tuple(
        Edge(node, source, "sep_conv_3x3" if (node, source) == (4, 3) else "none") for node, source in EDGES
    )
    weak = CellSpace("all14").derive([*np.where(NORMAL == 0.9, 0.15, NORMAL)])
    operation = {(edge.node, edge.source): edge.operation for edge in weak.normal}
    assert operation[(3, 0)] == "max_pool_3x3" and operation[(4, 1)] == "dil_conv_3x3" and operation[(4, 0)] == "none"
    assert len(weak.normal) == 14


@pytest.mark.parametrize(
    ("replace", "message"),
    [
        ([2, 2, "none"], "is not an edge"),
        ([6, 0, "none"], "is not an edge"),
        ([2, 0, "conv_7x7"], "is not an edge"),
        ([3, 0, "none"], "given twice|needs at least one"),
    ],
)
def test_faulty_genotypes(replace: list[Any], message: str) -> None:
    """An edge outside the space, an unknown operation and an edge given twice are refused."""
    plain = uniform_genotype("none").to_dict()
    plain["reduction"][0] = replace
    with pytest.raises(ValueError, match=message):
        Genotype.from_dict(plain)


@pytest.mark.parametrize(
    ("shape", "classes", "darts_v1", "mdenas_mixture"),
    [
        ((6, 3), (2,) * 5, 603_766, 662_878),
        ((6, 3), (20,) * 5, 655_696, 714_808),
        ((4, 3), (20,) * 5, 515_080, 593_740),
        ((5, 1), (10,) * 10, 625_024, 688_060),
        ((6, 3), (28, 10, 10, 10, 10), 637_232, 696_344),
    ],
    ids=["cifar10", "cifar100", "cifar100-4-cells", "pmnist", "mixture"],
)
def test_super_model_after_the_first_task(
    shape: tuple[int, int], classes: tuple[int, ...], darts_v1: int, mdenas_mixture: int
) -> None:
    """Heads of all tasks are there from the start and counted."""
    assert count_parameters(built(GENOTYPES["darts_v1"], "top2", *shape, classes)) == darts_v1
    assert count_parameters(built(GENOTYPES["mdenas_mixture"], "top2", *shape, classes)) == mdenas_mixture


def test_mean_size_of_random_genotypes() -> None:
    """Random tables give the specification's mean column of 741,480 parameters, up to both samples' errors."""
    generator = np.random.default_rng(0)
    space = CellSpace()
    sizes = [closed_form(space.derive(list(generator.random((28, 8)))), 6, 3) for _ in range(2000)]
    error = float(np.std(sizes)) / np.sqrt(len(sizes))
    # The specification's mean is a sample's as well; the exact one follows by linearity.
    assert abs(np.mean(sizes) - 741_480) < 4 * error * np.sqrt(2)
    assert abs(np.mean(sizes) - 739_432.8) < 4 * error
    low, high = np.quantile(sizes, [0.05, 0.95])
    assert 560_000 < low < 580_000 and 900_000 < high < 930_000
