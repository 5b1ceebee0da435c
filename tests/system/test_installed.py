"""The package as it is installed, in place and from a wheel: seen by Python, the command line and type checkers."""

from __future__ import annotations

import re
import shutil
import site
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

from seu_bench._version import __version__

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
#: What makes up the source of a distribution.
SOURCE = ("seu_bench", "plugins", "benchmarks", "setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")

#: A program of a user's: two mistakes, and types that a checker has to know.
PROGRAM = """
import seu_bench
from seu_bench_benchmarks import register_benchmarks
from seu_bench_methods.ewc import Ewc

record = seu_bench.run(strategy="naive", progress=0)
reveal_type(record.status)
reveal_type(Ewc.Options().ewc_lambda)
reveal_type(register_benchmarks)
record.no_such_field
"""


class Environment:
    """A virtual environment with seu-bench and others, in which what they need is found, but not what is installed in
    place here."""

    def __init__(self, folder: Path, *installed: Sequence[object]) -> None:
        self.folder = folder
        venv.create(folder / "env", with_pip=False)
        self.python = folder / "env" / "bin" / "python"
        (packages,) = (folder / "env" / "lib").glob("python*/site-packages")
        # A folder named in a .pth file is searched for modules; .pth files in it are not read.
        (packages / "needed.pth").write_text("".join(f"{path}\n" for path in site.getsitepackages()))
        pip = ["-m", "pip", "--python", self.python, "install", "--quiet", "--no-deps", "--no-build-isolation"]
        for words in installed:
            done = self.run([sys.executable, *pip, "--force-reinstall", *words])
            assert done.returncode == 0, done.stderr

    def run(self, command: Sequence[object]) -> subprocess.CompletedProcess[str]:
        """Run a command in an empty folder."""
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        return subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, cwd=elsewhere)

    def __call__(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run the environment's Python."""
        return self.run([self.python, *arguments])


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the source: an installation in place writes beside it."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in SOURCE:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, folder / name)
    return folder


@pytest.fixture(scope="module")
def in_place(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Environment:
    """Seu-bench and the examples' packages, installed in place."""
    folder = tmp_path_factory.mktemp("in-place")
    examples = [folder / name for name in ("my_seu_plugin", "seu_bench_random_walk_searcher")]
    for example in examples:
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")
        shutil.copytree(ROOT / "examples" / example.name, example, ignore=ignored)
    return Environment(folder, *(["--editable", path] for path in (checkout, *examples)))


@pytest.fixture(scope="module")
def from_wheel(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Environment:
    """Seu-bench, installed from a wheel."""
    folder = tmp_path_factory.mktemp("from-wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(checkout)]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Environment(folder, [next(folder.glob("*.whl"))])


@pytest.fixture(scope="module", params=["in_place", "from_wheel"])
def environment(request: pytest.FixtureRequest) -> Environment:
    """Both in turn."""
    found: Environment = request.getfixturevalue(request.param)
    return found


def test_modules_and_command(environment: Environment) -> None:
    """Names, benchmarks and both ways to call the command are there, without what is installed here."""
    code = (
        "import seu_bench, seu_bench_benchmarks, seu_bench_methods, pathlib;"
        "print(*dir(seu_bench)); print(seu_bench.__file__);"
        "print(len([*pathlib.Path(seu_bench_benchmarks.__file__).parent.glob('*.toml')]))"
    )
    done = environment("-c", code)
    assert done.returncode == 0, done.stderr
    names, file, benchmarks = done.stdout.splitlines()
    assert {"run", "sweep", "errors", "__doc__"} <= {*names.split()}
    assert not Path(file).resolve().is_relative_to(ROOT)
    assert int(benchmarks) == len([*(ROOT / "benchmarks").glob("*.toml")])
    answers = []
    for command in ([environment.python, "-m", "seu_bench"], [environment.python.with_name("seu-bench")]):
        done = [
            environment.run([*command, *words]) for words in (["-h"], ["list", "strategies"], ["rum"], ["--version"])
        ]
        assert [each.returncode for each in done] == [0, 0, 2, 0], [each.stderr for each in done]
        assert done[0].stdout.startswith("Usage: seu-bench ") and "naive" in done[1].stdout
        assert done[3].stdout == f"seu-bench, version {__version__}\n"
        answers.append([(each.stdout, each.stderr) for each in done])
    assert answers[0] == answers[1]


def test_types_are_seen(environment: Environment, tmp_path: Path) -> None:
    """By mypy in another folder: of the package and of the plugins that come with it."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = environment.run(
        [sys.executable, "-m", "mypy", "--python-executable", environment.python, "--cache-dir", tmp_path, program]
    )
    found = re.findall(r"program\.py:(\d+): (?:error|note): (.+)", done.stdout)
    said = [(int(line), re.sub(r"  \[.*\]$", "", text)) for line, text in found]
    assert next(text for line, text in said if line == 6).startswith(
        'Argument "progress" to "run" has incompatible type'
    )
    revealed = {line: text for line, text in said if text.startswith("Revealed type is")}
    assert "running" in revealed[7] and "finished" in revealed[7]
    assert "float" in revealed[8] and "Any" not in revealed[8]
    assert "seu_bench.plugin.registration.Register" in revealed[9]
    assert (10, '"Record" has no attribute "no_such_field"') in said
    assert {line for line, _ in said} == {6, 7, 8, 9, 10}


def test_new_modules_are_seen(in_place: Environment, checkout: Path) -> None:
    """Installed in place, a module that is written later can be imported at once."""
    (checkout / "seu_bench" / "utils" / "brand_new.py").write_text("value = 3\n")
    try:
        done = in_place("-c", "from seu_bench.utils.brand_new import value; print(value)")
    finally:
        (checkout / "seu_bench" / "utils" / "brand_new.py").unlink()
    assert done.stdout == "3\n", done.stderr


@pytest.mark.parametrize("name", ["mine", "random_walk"])
def test_examples_hold_to_the_contract(in_place: Environment, name: str) -> None:
    """Everything that the examples' packages register passes its checks."""
    done = in_place("-m", "seu_bench", "check-plugin", name)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout.splitlines()[-1])
    assert passed is not None and int(passed[1]) >= 11
