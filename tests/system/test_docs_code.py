"""Python that pages show is run: what is not part of a tested example (``include``) is executed as it stands."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.pages import BLOCK

ROOT = Path(__file__).resolve().parents[2]
#: Signatures of hooks, which another test compares with the hooks.
SIGNATURES = "docs/reference/hooks.md"
#: What a reader of the page has before its first block.
BEFORE = {
    "docs/guides/comparing.md": """
        import seu_bench
        seu_bench.run("naive", "split_digits", options={"epochs": 1})
    """,
    "docs/guides/loggers.md": "import seu_bench",
    "docs/guides/own_data.md": """
        import numpy
        images, labels = numpy.zeros((20, 8, 8), numpy.uint8), numpy.arange(20) % 2
        a, b, c, d = images[:10], labels[:10], images[10:], labels[10:]
    """,
    "docs/guides/saved_models.md": """
        import torch, seu_bench
        record = seu_bench.run("seu", "split_digits", protocol="quick", options={"epochs": 1, "searcher.epochs": 1})
        pixels = torch.zeros(2, 1, 8, 8, dtype=torch.uint8)
        import pathlib
        from seu_bench.engine.saved_model import onnx_bytes
        pathlib.Path("task-2.onnx").write_bytes(onnx_bytes(seu_bench.load_model(record.run_id), 2))
    """,
    "docs/guides/strategies.md": """
        from collections.abc import Mapping
        from typing import Any
        import torch
        from torch import Tensor, nn
        from seu_bench import Method
        from seu_bench.config import WidthOptions
        from seu_bench.data import StreamPlan
        from seu_bench.models import MultiHeadModel
        from seu_bench.training import KeptImages, StrategyContext, width_factor
        from seu_bench.utils import RandomState, derive_seed
    """,
    "docs/reference/plugin_interfaces.md": """
        from pydantic import Field, NonNegativeFloat
        from seu_bench.config import SelectingOptions, WidthOptions
    """,
}
#: What is shorter, or known after the run alone.
INSTEAD = {
    "README.md": {'seeds="0-2"': 'seeds="0"'},
    "docs/guides/saved_models.md": {'"split_digits-quick-seu-seed0"': "record.run_id"},
    "docs/guides/sweeps.md": {"range(3)": "range(1)"},
}


def blocks() -> list[object]:
    """The blocks of each page, in their order; a page's are one script."""
    found: list[object] = []
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        name = path.relative_to(ROOT).as_posix()
        own = [
            it["code"]
            for it in BLOCK.finditer(path.read_text(encoding="utf-8"))
            if it["kind"] == "python" and not it["source"]
        ]
        if own and name != SIGNATURES:
            found.append(pytest.param(name, own, id=name, marks=pytest.mark.long))
    return found


@pytest.mark.parametrize(("page", "code"), blocks())
def test_blocks_run(page: str, code: list[str], tmp_path: Path) -> None:
    script = "\n\n".join([textwrap.dedent(BEFORE.get(page, "")), *code])
    for shown, used in INSTEAD.get(page, {}).items():
        assert shown in script
        script = script.replace(shown, used)
    (tmp_path / "page.py").write_text(script, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
