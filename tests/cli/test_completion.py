"""Shell completion: what is offered where, in no time, and in real shells."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.board_records import writer
from support.commands import Answer, Command

from seu_bench.cli.completion.run_names import run_names
from seu_bench.plugin.registry import Registry
from seu_bench.results.record_files import pack_records

SEU_BENCH = [sys.executable, "-m", "seu_bench.cli.main"]


def completed(command: Command, monkeypatch: pytest.MonkeyPatch, line: str, shell: str = "bash") -> list[str]:
    """What is offered behind a line, as bash is told."""
    monkeypatch.setenv("_SEU_BENCH_COMPLETE", f"{shell}_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    answer: Answer = command()
    assert (answer.status, answer.err) == (0, "")
    return answer.out.splitlines()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("seu-bench le", ["plain,leaderboard"]),
        ("seu-bench -q ru", ["plain,run", "plain,runs"]),
        ("seu-bench run --unknown", []),
        ("seu-bench run --strategy ew", ["plain,ewc"]),
        ("seu-bench run --strategy=ew", ["plain,ewc"]),
        ("seu-bench run --strategy seu,ew", []),
        ("seu-bench sweep --strategy seu,ew", ["plain,seu,ewc"]),
        ("seu-bench sweep --strategy ewc,ew", []),
        ("seu-bench run --searcher da", ["plain,darts"]),
        ("seu-bench run --creator fr", ["plain,frugal"]),
        ("seu-bench run --benchmark split_cifar100", ["plain,split_cifar100", "plain,split_cifar100_class"]),
        ("seu-bench run --benchmark my.to", ["file,my.to"]),
        ("seu-bench run --benchmark split_fashion --protocol sm", ["plain,smoke"]),
        ("seu-bench run --strategy ewc -o ewc", ["plain,ewc_lambda="]),
        ("seu-bench run --strategy=ewc -o ewc", ["plain,ewc_lambda="]),
        ("seu-bench run --strategy naive -o ewc", []),
        ("seu-bench run --strategy ewc -o fisher=", ["plain,fisher=batch", "plain,fisher=per_sample"]),
        (
            "seu-bench run --strategy ewc -o backbone=res",
            ["plain,backbone=resnet18", "plain,backbone=resnet18_even", "plain,backbone=resnet32"],
        ),
        ("seu-bench run --searcher darts -o searcher.or", ["plain,searcher.order="]),
        ("seu-bench run -o searcher.alp", ["plain,searcher.alpha="]),
        ("seu-bench run -o benchmark.stream.val", ["plain,benchmark.stream.validation="]),
        ("seu-bench sweep --strategy naive,ewc -o ewc", ["plain,ewc_lambda="]),
        ("seu-bench sweep --executor slurm -o executor.part", ["plain,executor.partition="]),
        ("seu-bench run -o executor.", []),
        ("seu-bench tune --strategy ewc -g ewc", ["plain,ewc_lambda="]),
        ("seu-bench check-plugin ewc -o ewc", ["plain,ewc_lambda="]),
        ("seu-bench check-plugin frug", ["plain,frugal"]),
        ("seu-bench check-plugin split_fa", ["plain,split_fashion", "plain,split_fashion_class"]),
        ("seu-bench check-plugin slurm -o part", ["plain,partition="]),
        ("seu-bench watch --strategy seu,ew", ["plain,seu,ewc"]),
        ("seu-bench run --device a", ["plain,auto"]),
        ("seu-bench run --log tensor,mlf", ["plain,tensor,mlflow"]),
        ("seu-bench run --precision b", ["plain,bf16-features", "plain,bf16"]),
        ("seu-bench show --format ", ["plain,text", "plain,json"]),
        ("seu-bench leaderboard --format l", ["plain,latex"]),
        ("seu-bench leaderboard --columns acc,forg", ["plain,acc,forgetting"]),
        ("seu-bench leaderboard --budget memory", ["plain,memory_bytes=", "plain,memory="]),
        ("seu-bench leaderboard --sort ac", ["plain,acc"]),
        ("seu-bench list strat", ["plain,strategies"]),
        ("seu-bench list searchers zer", ["plain,zero_cost"]),
        ("seu-bench data fetch cifar100", ["plain,cifar100"]),
        ("seu-bench completion z", ["plain,zsh"]),
        ("seu-bench show --results ", ["dir,"]),
        ("seu-bench report --output pag", ["file,pag"]),
    ],
)
def test_what_is_offered(command: Command, monkeypatch: pytest.MonkeyPatch, line: str, offered: list[str]) -> None:
    assert completed(command, monkeypatch, line) == offered


def test_every_name_is_offered(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    registry = Registry()
    for option, kind in (("strategy", registry.strategies), ("benchmark", registry.benchmarks)):
        assert completed(command, monkeypatch, f"seu-bench run --{option} ") == [f"plain,{name}" for name in kind]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Three runs in folders, the first one changed last, and two packed ones."""
    put = writer(tmp_path)
    for name in ("packed-1", "packed-2"):
        put(run_id=name)
    pack_records(tmp_path)
    shutil.rmtree(tmp_path / "runs")
    for number, name in enumerate(("run-old", "run-new", "run-newest")):
        put(run_id=name)
        os.utime(tmp_path / "runs" / name, (number, number))
    put(run_id="packed-2")
    os.utime(tmp_path / "runs" / "packed-2", (0, 0))
    return tmp_path


def test_runs_newest_first(command: Command, monkeypatch: pytest.MonkeyPatch, results: Path) -> None:
    every = ["run-newest", "run-new", "packed-2", "run-old", "packed-1"]
    assert run_names(results) == every
    assert run_names(results, "run-n") == ["run-newest", "run-new"]
    assert run_names(results / "nowhere") == []
    for name in ("show", "verify", "export", "log", "compare"):
        offered = completed(command, monkeypatch, f"seu-bench {name} --results {results} ")
        assert offered == [f"plain,{run}" for run in every]
    named = completed(command, monkeypatch, f"seu-bench compare --results {results} run-new run-n")
    assert named == ["plain,run-newest"]
    assert completed(command, monkeypatch, f"seu-bench show --results {results} ./ru") == ["file,./ru"]


def test_other_shells(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """zsh and fish hand the words over as click has it, and replace whole words."""
    for shell, index, expected in (("zsh", "3", "plain\n--strategy=ewc\n"), ("fish", "--strategy=ew", "plain,--str")):
        monkeypatch.setenv("COMP_CWORD", index if shell == "fish" else "2")
        out = "\n".join(completed(command, monkeypatch, "seu-bench run --strategy=ew", shell))
        assert out.startswith(expected)


@pytest.mark.parametrize("instruction", ["bash_wrong", "csh_complete", "bash", "_"])
def test_nonsense_says_nothing(command: Command, monkeypatch: pytest.MonkeyPatch, instruction: str) -> None:
    monkeypatch.setenv("_SEU_BENCH_COMPLETE", instruction)
    assert command() == Answer(1, "", "")


def test_a_broken_plugin_hides_nothing(command: Command, monkeypatch: pytest.MonkeyPatch, install: object) -> None:
    install("a-stranger", {"bad": "bad_plugin"}, {"bad_plugin": "raise OSError('broken')"})  # type: ignore[operator]
    monkeypatch.setenv("_SEU_BENCH_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "seu-bench run --strategy e")
    answer = command()
    assert answer.status == 0 and "er_ace" in answer.out and answer.err == ""


class TestCommand:
    def test_it_prints_the_script(self, command: Command) -> None:
        for shell in ("bash", "zsh", "fish"):
            answer = command("completion", shell)
            assert (answer.status, answer.err) == (0, "")
            assert "_SEU_BENCH_COMPLETE" in answer.out and "seu-bench" in answer.out

    def test_the_shell_by_default(self, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SHELL", "/usr/bin/fish")
        assert command("completion").out == command("completion", "fish").out
        for shell in ("/bin/tcsh", ""):
            monkeypatch.setenv("SHELL", shell)
            refused = command("completion")
            assert refused.status == 2 and "seu-bench completion bash|zsh|fish" in refused.err


@pytest.mark.parametrize(
    "line", ["", "run --strategy ", "run -o ", "run --protocol ", "show ", "list metrics ", "leaderboard --columns "]
)
def test_no_torch(line: str) -> None:
    code = (
        "import sys; from seu_bench.cli.main import cli; from seu_bench.cli.completion.shells import answer; "
        "status = answer(cli, 'bash_complete'); heavy = {'torch', 'pandas', 'matplotlib', 'scipy'} & {*sys.modules}; "
        "assert not heavy, heavy; sys.exit(status)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "COMP_WORDS": f"seu-bench {line}"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


#: What is typed before the tab key, and what must stand there then.
TYPED = {
    "seu-bench leader": "seu-bench leaderboard ",
    "seu-bench run --strategy=ew": "--strategy=ewc ",
    "seu-bench run --strategy ewc -o ewc_l": "-o ewc_lambda=",
    "seu-bench run --strategy ewc -o fisher=per": "-o fisher=per_sample ",
    "seu-bench sweep --strategy seu,nai": "--strategy seu,naive ",
    "seu-bench show --results {results} run-ol": "run-old ",
    "echo hi; seu-bench show --results {results} run-newe": "run-newest ",
}


@pytest.mark.long
def test_a_real_bash(results: Path, tmp_path: Path) -> None:
    """In an interactive bash on a terminal of its own, each line is completed by the tab key."""
    bash = Terminal(["bash", "--norc", "-i"], tmp_path)
    try:
        bash.type('eval "$(seu-bench completion bash)"\n')
        bash.type("echo rea''dy\n")
        bash.until("ready\r\n")
        for line, expected in TYPED.items():
            typed = line.format(results=results)
            bash.type("\x15")
            bash.type(typed)
            bash.until(typed)
            bash.type("\t")
            begun = next(size for size in range(len(expected), 0, -1) if typed.endswith(expected[:size]))
            bash.until(expected[begun:])
    finally:
        bash.close()


class Terminal:
    """A program on a pseudo-terminal."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        import pty

        self.process, self.file = pty.fork()
        if self.process == 0:
            os.chdir(folder)
            programs = folder / "bin"
            programs.mkdir()
            seu_bench = programs / "seu-bench"
            seu_bench.write_text(f'#!/bin/sh\nexec {sys.executable} -m seu_bench.cli.main "$@"\n')
            seu_bench.chmod(0o755)
            wide = {"COLUMNS": "250", "PS1": "$ ", "TERM": "dumb", "PATH": f"{programs}:{os.environ['PATH']}"}
            os.execvpe(arguments[0], arguments, {**os.environ, **wide})
        self._seen = ""

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self.file, text.encode())

    def until(self, text: str) -> None:
        """Wait until a text appears behind what was awaited before."""
        for chunk in self._chunks():
            self._seen += chunk
            _, found, rest = self._seen.partition(text)
            if found:
                self._seen = rest
                return
        raise AssertionError(f"{text!r} did not appear in {self._seen!r}")

    def _chunks(self) -> Iterator[str]:
        yield ""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            if select.select([self.file], [], [], 1)[0]:
                yield os.read(self.file, 65536).decode(errors="replace")

    def close(self) -> None:
        """End the program."""
        os.close(self.file)
        os.kill(self.process, 9)
        os.waitpid(self.process, 0)
