"""Measurements of speed: the page comes from what was measured, and the plain version leaves no trace."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from support import tiny

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))  # the scripts are no installed package

from scripts.perf import plain  # noqa: E402
from scripts.perf.__main__ import main, merge  # noqa: E402
from scripts.perf.page import page  # noqa: E402

MACHINE = {
    "cpu": "a CPU",
    "cores": 2,
    "threads": 1,
    "load": 0.1,
    "torch": "2.0",
    "python": "3.11",
    "platform": "somewhere",
    "revision": "0123456789abcdef-dirty",
    "date": "2020-02-02",
}


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    tiny.one_thread()
    yield
    tiny.all_threads()


def measured(values: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A comparison as a worker leaves it."""
    rows = [["it", 1234567, 0.01234, None, True]]
    table = {"title": "Rows", "columns": ["way", "images", "share", "none", "truth"], "rows": rows}
    settings = {"settings": {"images": 1280}, "tables": [table]}
    return {"machine": MACHINE, "scale": 1.0, "seconds": 12.5, "values": values, **settings, **more}


# --- the page -----------------------------------------------------------------------------------------------------


def text_of(comparisons: dict[str, Any]) -> str:
    """The page of a document."""
    return "\n".join(page({"comparisons": comparisons}))


def verdicts(text: str, figure: str) -> list[str]:
    """The last three cells of a figure's rows: measured, wanted, reached."""
    rows = [line.split(" | ")[-3:] for line in text.splitlines() if figure in line]
    return [" ".join(row).removesuffix(" |") for row in rows]


def test_page_says_what_was_reached() -> None:
    """A figure that is reached, one that is missed, and those that were not measured."""
    text = text_of({"loop_alexnet": measured({"bare": 0.98}), "loop_cnn": measured({"bare": 0.94, "avalanche": None})})
    plain_loop = verdicts(text, "speed of the plain loop")
    assert plain_loop == ["0.98 at least 0.97 yes", "0.94 at least 0.95 **no**"]
    assert verdicts(text, "Avalanche's Naive |") == ["- at least 1.35 not measured"]
    assert "a CPU" in text
    assert "| loop_cnn | 2020-02-02 | 0123456789-dirty | 1 | 0.10 | 1.00 | 12.50 |" in text
    assert "| it | 1,234,567 | 0.0123 | - | yes |" in text


def test_published_page_comes_from_what_was_measured() -> None:
    """To the letter, if it was measured."""
    document = ROOT / "results" / "published" / "performance.json"
    if not document.is_file():
        pytest.skip("nothing is published yet")
    made = "\n".join(page(json.loads(document.read_text(encoding="utf-8")))) + "\n"
    assert made == document.with_suffix(".md").read_text(encoding="utf-8")


# --- the plain version --------------------------------------------------------------------------------------------


def patched() -> list[object]:
    """Parts that the plain version replaces."""
    import seu_bench.models.layers
    import seu_bench_kit.cells
    import seu_bench_kit.kernels
    import seu_bench_ltg.network
    from seu_bench.training.strategy import StagedStrategy

    operations = seu_bench_kit.cells
    return [
        StagedStrategy._features_cached,
        seu_bench.models.layers.channels_last,
        seu_bench_ltg.network.channels_last,
        seu_bench_kit.kernels.trains_on_cpu,
        operations.State.rectified,
        operations.separable,
    ]


def test_plain_restores_what_it_patched() -> None:
    """Each is another one within, and the same as before behind it, also where something fails."""
    before = patched()
    with pytest.raises(ZeroDivisionError), plain.plain():
        assert all(now is not was for now, was in zip(patched(), before, strict=True))
        raise ZeroDivisionError
    assert all(now is was for now, was in zip(patched(), before, strict=True))


def test_plain_computes_the_same() -> None:
    """Nearly: the same sums in another order; in the default memory format, and by no function of ours."""
    from seu_bench_kit.cells import ExtensionUnit, GenotypeNetwork
    from seu_bench_kit.search_space import SearchSpace

    def gradients() -> tuple[list[torch.Tensor], list[bool], str]:
        torch.manual_seed(0)
        network = GenotypeNetwork(tiny.genotype(), 3, 5, 3, 4, SearchSpace()).train().double()
        formats: list[bool] = []
        unit = network.cells[0]
        assert isinstance(unit, ExtensionUnit)
        unit.register_forward_hook(
            lambda *a: formats.append(a[2].is_contiguous(memory_format=torch.channels_last))  # type: ignore[arg-type]
        )
        network.float()
        loss = network(torch.randn(4, 3, 12, 12)).square().mean()
        loss.backward()
        return [weight.grad for weight in network.parameters() if weight.grad is not None], formats, _graph(loss)

    ours, our_formats, our_graph = gradients()
    with plain.plain():
        others, formats, graph = gradients()
    assert our_formats == [True]
    assert formats == [False]
    assert "Function" in our_graph
    assert "Function" not in graph
    assert len(ours) == len(others)
    for a, b in zip(ours, others, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5)


def _graph(loss: torch.Tensor) -> str:
    """Names of all nodes of a graph; those of our own functions end on ``FunctionBackward``."""
    names, todo, seen = [], [loss.grad_fn], set()
    while todo:
        node = todo.pop()
        if node is not None and node not in seen:
            seen.add(node)
            names.append(node.name())
            todo += [below for below, _ in node.next_functions]
    return " ".join(names)


# --- counting and measuring ---------------------------------------------------------------------------------------


def test_command(tmp_path: Path) -> None:
    """New measurements replace those that were there; the rest stays; the page is made again."""
    output = tmp_path / "found.json"
    merge(output, {"memory": measured({"within_budget": True})})
    merge(output, {"growth": measured({}), "memory": measured({"within_budget": False})})
    assert main(["page", "--output", str(output)]) == 0
    document = json.loads(output.read_text(encoding="utf-8"))
    assert list(document["comparisons"]) == ["memory", "growth"]
    text = output.with_suffix(".md").read_text(encoding="utf-8")
    assert verdicts(text, "cached features are within") == ["no yes **no**"]
