"""Documentation that cannot go stale unseen: links, code, commands, options, names and paths; shown Python is run."""

from __future__ import annotations

import ast
import importlib
import os
import re
import shlex
import subprocess
import sys
import textwrap
from pathlib import Path

import click
import pytest

from scripts import public_api
from seu_bench.cli.main import cli
from seu_bench.results.record import Record
from seu_bench.results.record_files import read_records

ROOT = public_api.ROOT
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        ROOT / "results" / "README.md",
        ROOT / "results" / "published" / "README.md",
    ]
)
#: The changelog and the page about upgrading tell of commands and names as they were.
PRESENT = [path for path in PAGES if path.name not in ("CHANGELOG.md", "upgrading.md")]
#: A fenced block of code: its language, and the file that it is taken from where one is named above it.
BLOCK = re.compile(
    r"(?:<!-- include: (?P<source>\S+) -->\n)?^```(?P<kind>\w*)\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE
)
LINK = re.compile(r"\]\(([^)\s]+)\)")
INLINE = re.compile(r"`([^`\n]+)`")
#: Tags of a run in MLflow, and a group of entry points.
TAGS = {"seu_bench.attempt", "seu_bench.status", "seu_bench.methods"}
#: Options of other programs that pages name.
FOREIGN = {
    "--durations",
    "--logdir",
    "--backend-store-uri",
    "--name",
    "--editable",
    "--write",
    "--unpack",
}


def each(paths: list[Path]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("page", paths, ids=lambda path: str(path.relative_to(ROOT)))


def slugs(text: str) -> set[str]:
    """Anchors of the headings of a page, as forges make them."""
    plain = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", plain, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(text: str) -> list[str]:
    """Every command line that begins with ``seu-bench``, in blocks and within sentences."""
    joined = text.replace("\\\n", " ")
    lines = re.findall(r"^    (?:.*; do |[A-Z_]+=\S+ )?(seu-bench [^;#|>&\n]+)", joined, re.MULTILINE)
    inline = [code for code in INLINE.findall(joined) if code.startswith("seu-bench ")]
    return [line.strip() for line in [*lines, *inline]]


def problem(line: str) -> str:
    """Why click would refuse the words of a command; empty: it would not."""
    words = [word for word in shlex.split(line)[1:] if word != "..."]
    command: click.Command = cli
    context = click.Context(cli, info_name="seu-bench")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        if words[0] in {"NAME", "best"}:  # any command, and the example's
            return ""
        if found is None:
            return f"no command {words[0]!r}"
        command, context = found, click.Context(found, parent=context, info_name=words.pop(0))
    try:
        command.make_parser(context).parse_args(args=words)
    except click.UsageError as error:
        return error.format_message()
    return ""


def options() -> set[str]:
    """Every option of every command."""
    found: set[str] = set()
    waiting: list[click.Command] = [cli]
    while waiting:
        command = waiting.pop()
        context = click.Context(command)
        found |= {name for option in command.get_params(context) for name in (*option.opts, *option.secondary_opts)}
        if isinstance(command, click.Group):
            waiting += [made for name in command.list_commands(context) if (made := command.get_command(context, name))]
    return found


@each(PAGES)
def test_links_resolve(page: Path) -> None:
    """Files are there, and so are the headings that anchors name."""
    for link in LINK.findall(BLOCK.sub("", page.read_text(encoding="utf-8"))):
        if "://" in link or link.startswith("mailto:"):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        assert target.exists(), link
        if anchor:
            assert anchor in slugs(target.read_text(encoding="utf-8")), link


@each(PRESENT)
def test_code_is_included_and_compiles(page: Path) -> None:
    """A block with the marker ``include`` stands word by word in that file; every block of Python is Python."""
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        source, kind, code = found["source"], found["kind"], found["code"]
        if source:
            assert code in (ROOT / source).read_text(encoding="utf-8"), code
        if kind == "python" and "hooks.md" not in page.name:  # signatures, compared with the hooks by another test
            ast.parse(textwrap.dedent(code))
    assert text.count("<!-- include: ") == sum(1 for found in BLOCK.finditer(text) if found["source"])


@each(PRESENT)
def test_commands_parse(page: Path) -> None:
    """Commands and options are those of the command line."""
    for line in commands(page.read_text(encoding="utf-8")):
        assert problem(line) == "", line


def test_commands_that_would_be_refused() -> None:
    """The check above sees an unknown command, an unknown option and an option without its value."""
    assert problem("seu-bench fly") and problem("seu-bench run --patiently 3") and problem("seu-bench run --seed")
    assert problem("seu-bench run --seed 3 -o epochs=2") == problem("seu-bench data fetch mnist") == ""


@each(PRESENT)
def test_options_exist(page: Path) -> None:
    """Every option that a sentence names is one of some command."""
    known = options() | FOREIGN
    named = {
        option
        for code in INLINE.findall(page.read_text(encoding="utf-8"))
        if not code.startswith(
            ("docker ", "pip ", "scancel ", "tensorboard ", "mlflow ", "python ", "pytest ", ".venv/")
        )
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", code)
    }
    assert named - known == set()


@each(PRESENT)
def test_names_and_paths_exist(page: Path) -> None:
    """Dotted names can be imported, and paths of the repository are there."""
    for code in INLINE.findall(page.read_text(encoding="utf-8")):
        for name in re.findall(r"^(seu_bench(?:\.\w+)+)", code):
            if name in TAGS:
                continue
            module, rest = name, list[str]()
            while True:
                try:
                    value = importlib.import_module(module)
                    break
                except ModuleNotFoundError:
                    module, _, attribute = module.rpartition(".")
                    rest.insert(0, attribute)
                    assert module, name
            for attribute in rest:
                value = getattr(value, attribute)
        if re.fullmatch(r"(?:seu_bench|plugins|tests|scripts|examples|benchmarks|docs)/[\w./-]+", code):
            assert (ROOT / code).exists(), code
        elif re.fullmatch(r"(?:\w+/)+\w+\.py", code):
            tops = (ROOT, ROOT / "seu_bench", *(ROOT / "examples").iterdir())
            assert any((top / code).exists() for top in tops), code


def test_table_of_contents_has_every_page() -> None:
    contents = ROOT / "docs" / "README.md"
    linked = {
        (contents.parent / link.partition("#")[0]).resolve() for link in LINK.findall(contents.read_text("utf-8"))
    }
    pages = {path for path in (ROOT / "docs").rglob("*.md") if path != contents}
    assert pages <= linked


def test_every_command_is_in_the_table() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 120
    text = (ROOT / "docs" / "reference" / "command_line.md").read_text(encoding="utf-8")
    for name in cli.list_commands(click.Context(cli)):
        assert f"`seu-bench {name}" in text, name


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for page in PRESENT:
        named = re.findall(r"(?:^    |`)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert set(named) <= targets, page


def test_page_of_public_names() -> None:
    """It is what the rooms declare, each name can be imported from its room, and there are not too many."""
    assert public_api.PAGE.read_text(encoding="utf-8") == public_api.page(), "make docs"
    count = 0
    for room, modules in public_api.rooms():
        module = importlib.import_module(room)
        for name in [name for names in modules.values() for name in names]:
            assert hasattr(module, name), f"{room}.{name}"
            count += 1
    assert 6 <= count <= 350


def test_every_field_and_metric_is_described() -> None:
    """The tables of records and of metrics name whatever a record holds."""
    records = (ROOT / "docs" / "reference" / "records.md").read_text(encoding="utf-8")
    assert [name for name in Record.model_fields if f"`{name}`" not in records] == []
    metrics = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    example = next(
        record for record in read_records(ROOT / "tests" / "support" / "sample_records") if isinstance(record, Record)
    )
    assert [name for name in example.metrics if f"`{name}`" not in metrics] == []


def test_examples_use_public_names_alone() -> None:
    """They import from rooms, or from the modules that stand beside the rooms."""
    public = {room: {name for names in modules.values() for name in names} for room, modules in public_api.rooms()}
    beside = {"seu_bench.errors", "seu_bench.metrics"}
    for path in (ROOT / "examples").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "seu_bench":
                private = {alias.name for alias in node.names} - public.get(node.module or "", set())
                assert not private or node.module in beside, f"{path.name}: {node.module} {private}"


def test_promises_are_tested() -> None:
    """Each test that the table of promises names is there."""
    text = (ROOT / "docs" / "explanation" / "reliability.md").read_text(encoding="utf-8")
    rows = [row for row in text.split("## Promises and their tests")[1].splitlines() if "::" in row]
    assert len(rows) >= 10
    for row in rows:
        file = ""
        for named, test in re.findall(r"`(tests/[a-z_/]+\.py)?::([a-z_]+)`", row):
            file = named or file
            assert f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), (file, test)


#: Signatures of hooks, which another test compares with the hooks; a page that another test pastes, with its commands.
ELSEWHERE = ("docs/reference/hooks.md", "docs/guides/from_folder_to_model.md")
#: What a reader of the page has before its first block.
BEFORE = {
    "docs/guides/comparing.md": """
        import seu_bench
        seu_bench.run("naive", "split_digits", options={"epochs": 1})
    """,
    "docs/guides/loggers.md": "import seu_bench",
    "docs/guides/own_data.md": """
        import numpy, seu_bench
        images, labels = numpy.zeros((20, 8, 8), numpy.uint8), numpy.arange(20) % 2
        a, b, c, d = images[:10], labels[:10], images[10:], labels[10:]
        ids, (x1, y1, x1_test, y1_test) = numpy.zeros((20, 6), int), (a, b, c, d)
        x2, y2, x2_test, y2_test = a, b + 2, c, d + 2
    """,
    "docs/guides/saved_models.md": """
        import torch, seu_bench
        record = seu_bench.run("seu", "split_digits", protocol="quick", options={"epochs": 1, "searcher.epochs": 1})
        pictures = torch.zeros(2, 8, 8, dtype=torch.uint8)
        import pathlib
        from PIL import Image
        from seu_bench.engine.onnx_export import onnx_bytes
        for name in ("a.png", "b.png"):
            Image.new("RGB", (20, 16)).save(name)
        pathlib.Path("task-2.onnx").write_bytes(onnx_bytes(seu_bench.load_model(record.run_id), 2))
        images = torch.arange(20 * 64, dtype=torch.uint8).view(20, 8, 8)
        june, june_labels = july, july_labels = images, ["c", "d"] * 10
        april = images, ["a", "b"] * 10, images, ["a", "b"] * 10
        benchmark = seu_bench.stream({"April": april}, name="months", scenario="class")
        months = seu_bench.run("slda", benchmark, protocol="smoke").run_id
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
    "docs/guides/own_data.md": {'seeds="0-4"': 'seeds="0"'},
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
        if own and name not in ELSEWHERE:
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
