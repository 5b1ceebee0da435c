"""Whose code made a run: edited plugins are never taken for what they were. A package like an installed one, edited."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import FEW_IMAGES, TINY, write_package

from seu_bench.engine.run_folder import find_state
from seu_bench.results.building import read_leaderboards
from seu_bench.results.record import Record, read_record

pytestmark = pytest.mark.long

METRIC = """

@hookimpl
def register_metrics(register):
    register("half_acc", lambda record: record.metrics["acc"] / 2)
"""


class Plugin:
    """A package on the path of the processes that are started here, which can be edited between them."""

    def __init__(self, folder: Path) -> None:
        self.results = folder / "results"
        self.site = write_package(folder / "site", "a-stranger", {"tiny": "tiny_plugin"}, {})
        self.package = self.site / "tiny_plugin"
        self.package.mkdir()
        (self.package / "__init__.py").write_text(TINY + METRIC)
        (self.package / "helper.py").write_text("VALUE = 1\n")
        (folder / "few.toml").write_text(FEW_IMAGES)
        self.asked = ("--strategy", "tiny", "--benchmark", folder / "few.toml", "--device", "cpu")

    def edit(self) -> None:
        """Edit a module beside the plugin's own."""
        with (self.package / "helper.py").open("a") as file:
            file.write("VALUE += 1\n")

    def __call__(self, command: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run a command on the results."""
        words = [command, *map(str, arguments), "--results", str(self.results)]
        environment = {**os.environ, "PYTHONPATH": str(self.site), "COLUMNS": "200"}
        return subprocess.run(
            [sys.executable, "-m", "seu_bench", *words], env=environment, capture_output=True, text=True, check=False
        )

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Make the run."""
        return self("run", *self.asked, *arguments)

    def record(self, seed: int = 0) -> Record:
        """Its record."""
        (folder,) = (self.results / "runs").glob(f"*-seed{seed}-*")
        return read_record(folder)


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    """The package, not edited yet."""
    return Plugin(tmp_path)


def digest(record: Record) -> str:
    """The digest of the strategy's source."""
    (code,) = [code for code in record.code if code.kind == "strategy"]
    assert (code.name, code.package, code.version) == ("tiny", "a-stranger", "1.0")
    assert code.sha256 is not None
    return code.sha256


def test_finished(plugin: Plugin) -> None:
    """Refused with both digests, shown where that is accepted, and made again with the new one."""
    made = plugin.run()
    assert made.returncode == 0, made.stderr
    first = plugin.record()
    assert [code.kind for code in first.code] == ["strategy", "benchmark file", "metric"]
    assert plugin.run().returncode == 0
    plugin.edit()
    refused = plugin.run()
    assert refused.returncode == 2
    assert "nothing was computed" not in refused.stdout + refused.stderr
    assert plugin.record() == first
    shown = plugin.run("--accept-code")
    assert shown.returncode == 0
    assert f"a-stranger 1.0 [{digest(first)[:10]}]" in refused.stderr
    assert "it is shown as it is" in shown.stdout + shown.stderr
    assert plugin.record() == first
    verified = plugin("verify", first.run_id, "--benchmark", plugin.asked[3])
    assert "the run was made with other code" in verified.stdout
    again = plugin.run("--restart")
    assert again.returncode == 0, again.stderr
    second = plugin.record()
    assert digest(second) != digest(first)
    assert f"[{digest(second)[:10]}]" in refused.stderr
    (plugin.site.parent / "few.toml").write_text(FEW_IMAGES + "# a comment decides nothing\n")
    assert plugin.run().returncode == 0
    assert f"strategy tiny: a-stranger 1.0 [{digest(second)[:10]}]" in plugin("show", first.run_id).stdout


def test_interrupted(plugin: Plugin) -> None:
    """Refused, and nothing is lost; the record of an accepted one says what made its parts."""
    stopped = plugin.run("-o", "epochs=30", "--checkpoint-every", 0, "--max-seconds", 0.001)
    assert stopped.returncode == 75, stopped.stderr
    first = plugin.record()
    state = find_state(plugin.results, first.run_id)
    assert state is not None and state.position is not None
    plugin.edit()
    refused = plugin.run("-o", "epochs=30")
    assert refused.returncode == 2
    assert f"[{digest(first)[:10]}]" in refused.stderr and "--accept-code" in refused.stderr
    assert find_state(plugin.results, first.run_id) == state
    accepted = plugin.run("-o", "epochs=30", "--accept-code")
    assert accepted.returncode == 0, accepted.stderr
    record = plugin.record()
    assert digest(record) != digest(first)
    assert [code.sha256 for code in record.earlier_code] == [digest(first)]


def test_two_versions_of_a_row(plugin: Plugin) -> None:
    """Two rows of a seed each, told apart by the code, and not the mean of both in one."""
    for seed in (0, 1):
        assert plugin.run("--seed", seed).returncode == 0
        plugin.edit()
    rows = read_leaderboards(plugin.results).boards[0].rows
    codes = [f"tiny (code=a-stranger 1.0 [{digest(plugin.record(seed))[:10]}])" for seed in (0, 1)]
    assert sorted((row.configuration, row.seeds) for row in rows) == sorted((code, 1) for code in codes)
    compared = plugin("compare", *(plugin.record(seed).run_id for seed in (0, 1)), "--format", "json")
    settings = json.loads(compared.stdout)["runs"][0]["settings"]
    assert settings["code.strategy tiny"] == [str(plugin.record(seed).code[0]) for seed in (0, 1)]


def test_sweep(plugin: Plugin) -> None:
    """A job of other code is a failed one until it is retried or accepted."""
    asked = [*plugin.asked, "--seeds", "0,1", "--jobs", 1]
    assert plugin("sweep", *asked).returncode == 0
    first = plugin.record()
    plugin.edit()
    refused = plugin("sweep", *asked)
    assert refused.returncode == 1
    assert "other code" in refused.stdout + refused.stderr
    assert plugin("sweep", *asked, "--accept-code").returncode == 0
    assert plugin.record() == first
    again = plugin("sweep", *asked, "--retry-failed")
    assert again.returncode == 0, again.stderr
    assert digest(plugin.record()) == digest(plugin.record(1)) != digest(first)
