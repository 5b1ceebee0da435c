"""Shared fixtures: the command line called in this process, and a stranger's plugin that trains in no time."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import random
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from support.commands import TINY, Answer, Command, Install, write_package

from seu_bench.utils.startup import defer_imports

defer_imports()  # as the command does: Avalanche then imports no wandb and no torchmetrics, which take seconds
# Read by torch when it is first imported, here and in the processes that tests start. More threads would only wait for
# each other on what tests compute: a hundred times longer where other processes want the cores.
os.environ["OMP_NUM_THREADS"] = "1"

#: Objects between two collections; Python's own 700 takes a third of the processor time of what tests learn.
COLLECT_AFTER = 20_000


def pytest_configure() -> None:
    """Let the processes that tests start be interrupted, also where the tests run in the background: what ignores a
    signal hands that on, and what handles one does not."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_collection_finish() -> None:
    """Never walk again over the million objects that imported libraries leave."""
    import hypothesis  # noqa: F401  # which asks, when it is imported, the collector who refers to an object

    gc.freeze()
    gc.set_threshold(COLLECT_AFTER, 10, 10)


def pytest_unconfigure() -> None:
    """Free at the exit what was kept from the collector: some extension modules look for leaks there."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """Draw the same numbers in a test whichever ran before it in this process: what fails once fails again."""
    import numpy as np
    import torch

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """``seu-bench`` in this process, in an empty working folder and with no data sets on disk."""
    folder = tmp_path_factory.mktemp("working-folder")

    def call(*arguments: object) -> Answer:
        from seu_bench.cli.main import main

        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["seu-bench", *map(str, arguments)])
            patch.setenv("SEU_BENCH_DATA", str(folder / "no-data"))
            patch.setenv("SEU_BENCH_PLUGINS", os.environ.get("SEU_BENCH_PLUGINS", ""))  # --plugin adds to it
            patch.chdir(folder)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), pytest.raises(SystemExit) as left:
                main()
        assert isinstance(left.value.code, int)
        assert list(folder.iterdir()) == []
        return Answer(left.value.code, out.getvalue(), err.getvalue())

    return call


@pytest.fixture
def install(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Install]:
    """Install a package for the length of a test: its name, its entry points and its modules' source."""
    before = set(sys.modules)
    site = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:

        def call(package: str, points: Mapping[str, str], modules: Mapping[str, str]) -> Path:
            folder = write_package(site / package, package, points, modules)
            patch.syspath_prepend(folder)
            return folder

        yield call
    for name in set(sys.modules) - before:
        if str(site) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.fixture
def tiny(install: Install) -> Path:
    """The strategy ``tiny`` of a package called ``a-stranger``; the folder that was added to the path."""
    return install("a-stranger", {"tiny": "tiny_plugin"}, {"tiny_plugin": TINY})
