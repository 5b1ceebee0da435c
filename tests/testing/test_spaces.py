"""Every search space holds to the contract, one written from the docs too; and each check finds what is broken."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest
from support.broken_spaces import BROKEN, Good, Offers
from support.tiny import all_threads, one_thread

from seu_bench.errors import SeuBenchError
from seu_bench.plugin.registry import Registry
from seu_bench.testing.kinds import SAMPLES
from seu_bench.utils.seeding import RandomState
from seu_bench_kit import SpaceContract

setup_module, teardown_module = one_thread, all_threads

RUNS = ("resumes_to_the_same_weights", "leaves_a_complete_record", "counts_its_parameters")


class TestDense(SpaceContract):
    """The smallest."""

    space = "dense"


@pytest.mark.long
class TestMBConv(SpaceContract):
    """Inverted residuals."""

    space = "mbconv"


@pytest.mark.long
class TestCells(SpaceContract):
    """The paper's, two edges of each node."""

    space = "darts_cell"


@pytest.mark.long
class TestAllEdges(SpaceContract):
    """The paper's, all edges, one form."""

    space = "darts_cell"
    options: ClassVar = {"edges": "all14", "cell_types": 1}


@pytest.mark.long
class TestExample(SpaceContract):
    """The one of the tutorial."""

    space = "tried"
    plugins = (Offers(Good()),)


def test_all_of_them_are_tried() -> None:
    """No space is offered that the tests above leave out."""
    assert {it.space for it in (TestDense, TestMBConv, TestCells)} == set(Registry().spaces)


@pytest.mark.parametrize(
    "case", [pytest.param(it, marks=[pytest.mark.long] if BROKEN[it][0] in RUNS else []) for it in BROKEN]
)
def test_broken(case: str, tmp_path: Path) -> None:
    """The check says what is wrong."""
    check, said, space = BROKEN[case]
    contract: Any = type("Broken", (SpaceContract,), {"space": "tried", "plugins": [Offers(space)]})()
    test = getattr(contract, f"test_{check}")
    names = inspect.signature(test).parameters
    with RandomState(0).active(), pytest.raises((pytest.fail.Exception, SeuBenchError)) as caught:
        factory = SpaceContract.factory.__wrapped__(contract)
        given = {"factory": factory, "built": space, "sample": SAMPLES[0], "tmp_path": tmp_path}
        given["trial"] = SpaceContract.trial.__wrapped__(contract, factory, space)
        test(**{name: given[name] for name in names})
    assert re.search(said, str(caught.value)), caught.value


def test_each_check_was_seen_to_fail() -> None:
    """But one, which is the strategies' own."""
    checks = {name.removeprefix("test_") for name in dir(SpaceContract) if name.startswith("test_")}
    assert checks - {check for check, _, _ in BROKEN.values()} == {"model_can_be_made_again"}
