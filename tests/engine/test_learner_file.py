"""``learner.safetensors``: every state comes back bit by bit, and what is not as it was written is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import seu_bench
from seu_bench.engine.learner_file import Ancestor, learner_bytes, parse_learner
from seu_bench.errors import ResultsError
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, write_record
from seu_bench.results.record_files import LEARNER_NAME, MODEL_NAME
from seu_bench.training.state import difference

BENCHMARK = Registry().benchmarks.find("split_digits").factory.load()
OPEN = {"benchmark.stream.input.normalise": "first_task", "benchmark.stream.order": "fixed"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Record]:
    """A short run of replay that kept its learner."""
    results = tmp_path_factory.mktemp("results")
    options: dict[str, Any] = {**OPEN, "backbone": "mlp"}
    record = seu_bench.run(
        "replay", "split_digits", protocol="smoke", results=results, device="cpu", options=options, first_tasks=2
    )
    return results / "runs" / record.run_id, record


def test_every_state_comes_back() -> None:
    """Tensors of all types, generators' states, and collections with keys that JSON has not."""
    own: dict[str, Any] = {
        "plain": [None, True, 3, -0.0, math.inf, "text", "tensor", {"tensor": "no tensor"}],
        "keys": {3: "three", (1, 2): [torch.arange(3)], "map": {}, "a/b": torch.zeros(0, 4)},
        "kinds": (torch.ones(2, dtype=torch.bool), torch.ones(2, dtype=torch.bfloat16), {3, 1, 2}),
        "generator": torch.Generator().get_state(),
        "view": torch.arange(12).view(3, 4).t(),
    }
    content = learner_bytes(
        {"own": own, "weights": {"w": torch.ones(3)}, "own_now": own}, [{"data": "x"}], "x-1", BENCHMARK
    )
    state, seal = parse_learner(content)
    assert difference(state["own"], own) is None and seal.tasks == ({"data": "x"},)
    assert type(state["own"]["keys"][1, 2]) is list and type(state["own"]["kinds"]) is tuple
    assert math.copysign(1, state["own"]["plain"][3]) == -1
    with pytest.raises(TypeError, match="own/odd is a object"):
        learner_bytes({"own": {"odd": object()}}, [], "x-1", BENCHMARK)


def test_kept_by_default_where_nothing_looks_ahead(run: tuple[Path, Record], tmp_path: Path) -> None:
    """And nowhere else; its size is in the record, and weights are not in it."""
    folder, record = run
    size = (folder / LEARNER_NAME).stat().st_size
    assert record.open_ended and record.learner_bytes == size
    ancestor = Ancestor.read(folder)
    assert len(ancestor.tasks) == 2 and {*ancestor.state["weights"]} == {
        *seu_bench.load_model(folder).network.state_dict()
    }
    assert not [name for name in json.dumps(list(ancestor.state["own"])) if name == "weights"]
    base: dict[str, Any] = {"protocol": "smoke", "results": tmp_path, "device": "cpu"}
    plain = seu_bench.run("naive", options={"backbone": "mlp"}, **base)
    with pytest.raises(ResultsError, match="kept no learner"):
        Ancestor.read(tmp_path / "runs" / plain.run_id)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        (LEARNER_NAME, lambda content: content[:-1], "is not that of the record"),
        (LEARNER_NAME, lambda content: bytes([content[0] ^ 1]) + content[1:], "is not that of the record"),
        (MODEL_NAME, lambda content: content + b"x", "is not that of the record"),
        (LEARNER_NAME, None, "cannot be read"),
    ],
)
def test_refused(
    run: tuple[Path, Record], tmp_path: Path, name: str, change: Callable[[bytes], bytes] | None, said: str
) -> None:
    """A file that is cut, changed or gone; in words, with the file."""
    folder, record = run
    write_record(tmp_path, record)
    here = tmp_path / "runs" / record.run_id
    for file in (MODEL_NAME, LEARNER_NAME):
        content = (folder / file).read_bytes()
        if file != name or change is not None:
            (here / file).write_bytes(change(content) if file == name and change else content)
    with pytest.raises(ResultsError, match=said) as refused:
        Ancestor.read(here)
    assert name in str(refused.value)
