"""How much commands say: --quiet and --verbose on either side of the name, and --format json."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from support.commands import Answer, Command
from support.records import a_record
from support.shown import rendered

from seu_bench.cli.output.run_summary import summary_lines
from seu_bench.results.record import Record, read_record, record_path, write_record
from seu_bench.results.record_files import pack_records

SMALL = ("--protocol", "smoke", "--limit", 8, "-o", "epochs=1")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One results folder for the runs of this module."""
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def quiet(command: Command, results: Path) -> Answer:
    """The answer of a run that says nothing but its id."""
    return command("run", "--strategy", "naive", *SMALL, "--results", results, "-q")


@pytest.fixture(scope="module")
def record(quiet: Answer, results: Path) -> Record:
    return read_record(record_path(results, quiet.out.strip()))


class TestQuiet:
    def test_a_run_prints_its_id_alone(self, quiet: Answer, record: Record) -> None:
        assert (quiet.status, quiet.out, quiet.err) == (0, f"{record.run_id}\n", "")

    def test_before_the_command_as_well(self, command: Command, quiet: Answer, results: Path) -> None:
        for before, after in ((["-q"], []), (["--quiet"], ["-q"]), ([], ["--quiet"])):
            answer = command(*before, "run", "--strategy", "naive", *SMALL, "--results", results, *after)
            assert answer == quiet

    @pytest.mark.parametrize("arguments", [("-q", "run", "-v"), ("-qv", "run"), ("run", "-v", "--quiet")])
    def test_not_both(self, command: Command, arguments: tuple[str, ...]) -> None:
        answer = command(*arguments)
        assert (answer.status, answer.out) == (2, "")
        assert "--quiet and --verbose exclude each other" in answer.err

    def test_errors_are_said(self, command: Command, tmp_path: Path) -> None:
        answer = command("-q", "run", "--strategy", "nive", "--results", tmp_path)
        assert (answer.status, answer.out) == (2, "")
        assert "did you mean 'naive'?" in answer.err

    def test_other_commands(self, command: Command, record: Record, results: Path) -> None:
        """Each prints what a script would go on with: files, ids, or the verdict."""
        place = ("--results", results)
        assert command("leaderboard", "-q", *place).out == ""
        page = results / "report.html"
        assert command("-q", "report", "--figures", 0, *place).out == f"{page}\n"
        assert command("verify", record.run_id, "-q", *place) == Answer(0, "no difference found\n", "")
        swept = command("sweep", "-q", "--strategy", "naive", *SMALL, *place)
        assert swept == Answer(0, f"{record.run_id}\n", "")
        pending = command("sweep", "-q", "--dry-run", "--strategy", "naive", "--seeds", "0-2", *SMALL, *place)
        assert len(pending.out.splitlines()) == 2 and record.run_id not in pending.out


class TestVerbose:
    def test_what_was_resolved_and_everything_of_the_record(self, command: Command, results: Path) -> None:
        more = ("--seed", 1, "-o", "momentum=0.5", "-v", "--results", results)
        answer = command("run", "--strategy", "naive", *SMALL, *more)
        assert answer.status == 0
        run_id = next(line.removeprefix("run: ") for line in answer.err.splitlines() if line.startswith("run: "))
        rows = {words[0]: words[1:] for line in answer.err.splitlines() if len(words := line.split()) > 2}
        assert rows["momentum"] == ["0.5", "given"]
        assert rows["batch_size"] == ["16", "protocol", "smoke"]
        assert rows["lr_schedule"] == ["cosine", "default"]
        assert f"results: {results}" in answer.err
        shown = command("show", run_id, "--results", results).out
        assert answer.out.startswith(shown) and "seu-bench show" not in answer.out


class TestJson:
    def test_run_and_show_print_the_file(self, command: Command, record: Record, results: Path) -> None:
        text = record_path(results, record.run_id).read_text(encoding="utf-8")
        assert command("show", record.run_id, "--results", results, "--format", "json").out == text
        answer = command("run", "--strategy", "naive", *SMALL, "--results", results, "--format", "json")
        assert (answer.out, answer.err) == (text, "")
        refused = command("show", record.run_id, "--results", results, "--format", "json", "--plot")
        assert refused.status == 2 and "--plot" in refused.err

    def test_of_a_packed_record_and_of_a_folder_of_another_name(self, command: Command, tmp_path: Path) -> None:
        write_record(tmp_path, a_record("one"))
        path = record_path(tmp_path, "one")
        document = json.loads(path.read_text()) | {"a_key_of_later": [1]}
        path.write_text(json.dumps(document, indent=1) + "\n")
        text = path.read_text()
        asked = ("--results", tmp_path, "--format", "json")
        assert command("show", "one", *asked).out == text
        path.parent.rename(tmp_path / "runs" / "other")
        assert command("show", "other", *asked).out == text
        assert command("show", tmp_path / "runs" / "other", *asked).out == text
        (tmp_path / "runs" / "other").rename(tmp_path / "runs" / "one")
        pack_records(tmp_path)
        path.unlink()
        assert command("show", "one", *asked).out == text

    def test_sweep(self, command: Command, record: Record, results: Path) -> None:
        asked = ("sweep", "--strategy", "naive", *SMALL, "--results", results, "--format", "json")
        document: dict[str, Any] = json.loads(command(*asked).out)
        (job,) = document["jobs"]
        assert document["exit_status"] == 0
        assert (job["run_id"], job["status"], job["made"]) == (record.run_id, "finished", False)
        assert job["metrics"] == record.metrics
        (planned,) = json.loads(command(*asked, "--dry-run").out)["jobs"]
        assert planned == {"run_id": record.run_id, "label": job["label"], "state": "finished"}


class TestSummary:
    def summary(self, record: Record) -> str:
        return "".join(rendered(line) for line in summary_lines(record, Path("results")))

    def test_the_command_can_be_pasted(self, tmp_path: Path) -> None:
        assert "seu-bench show one shows" in self.summary(a_record("one"))
        folder = tmp_path / "a folder's"
        *_, last = summary_lines(a_record("one"), folder)
        assert shlex.split(str(last))[:5] == ["seu-bench", "show", "one", "--results", str(folder)]

    def test_many_tasks_are_numbered(self) -> None:
        def row(tasks: int) -> str:
            names = tuple(f"task-{task}" for task in range(tasks))
            matrix = ((0.5,) * tasks,)
            return self.summary(a_record(task_names=names, accuracy_matrix=matrix))

        assert "50.0 % task-9" in row(10)
        assert "task-" not in row(11) and row(20).count("50.0") == 20
        assert row(23).count("50.0") == 20 and "and 3 more" in row(23)

    def test_nothing_measured(self) -> None:
        text = self.summary(a_record(status="failed"))
        assert "failed" in text and "accuracy  " not in text and "None" not in text
