"""Small runs that tests of saved models and of verification share."""

from __future__ import annotations

import pytest
from support.commands import SMALL_SEU, Command, RunFolders

SMALL = ("--protocol", "smoke", "--limit", 12, "-o", "epochs=1", "--device", "cpu")


@pytest.fixture(scope="session")
def folders(command: Command, tmp_path_factory: pytest.TempPathFactory) -> RunFolders:
    """The folder of a finished run of each strategy."""
    return RunFolders(command, (*SMALL, "--results", tmp_path_factory.mktemp("results")), {"seu": SMALL_SEU})
