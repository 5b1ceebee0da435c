"""How much memory features may take: what the user says, or half of what is free, within a container's limit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
from support.tiny import CPU

from seu_bench.models.feature_cache import feature_tiers
from seu_bench.utils import hardware
from seu_bench.utils.hardware import free_host_memory


@pytest.fixture
def container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder where a container's limit is looked for; empty."""
    monkeypatch.setattr(hardware, "_CONTAINER", tmp_path)
    yield tmp_path


def limited(container: Path, limit: object, used: object) -> None:
    (container / "memory.max").write_text(f"{limit}\n")
    (container / "memory.current").write_text(f"{used}\n")


def test_half_of_what_is_free(container: Path) -> None:
    """Without a budget and a container: half of what the system has, which others use at the same time."""
    (tier,) = feature_tiers(CPU, None)
    free = psutil.virtual_memory().available
    assert tier.limit == pytest.approx(free / 2, rel=0.2)
    assert tier.limit < free


def test_half_of_a_container(container: Path) -> None:
    """A container's limit, less what it uses, of which pages of files can be had back at any time."""
    limited(container, 10_000_000, 4_000_000)
    assert free_host_memory() == 6_000_000
    limited(container, 10_000_000, 9_000_000)
    (container / "memory.stat").write_text("anon 4000000\nactive_file 2000000\ninactive_file 3000000\n")
    assert free_host_memory() == 6_000_000
    (tier,) = feature_tiers(CPU, None)
    assert tier.limit == 3_000_000
    (tier,) = feature_tiers(CPU, 5_000_000)
    assert tier.limit == 5_000_000


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_budget_on_a_gpu() -> None:
    """The GPU's memory first, at most half of what is free there; the rest in the host's."""
    device = torch.device("cuda")
    free = torch.cuda.mem_get_info(device)[0]
    on_device, host = feature_tiers(device, 1000)
    assert (on_device.device.type, on_device.limit, host.device, host.limit) == ("cuda", 1000, CPU, 0)
    on_device, host = feature_tiers(device, free)
    assert on_device.limit == pytest.approx(free / 2, rel=0.2)
    assert on_device.limit + host.limit == free
