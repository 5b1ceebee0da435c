"""Pages of what is registered: each method and benchmark with its options and published results, parts by kind.

Nothing here is written by hand: names, summaries and options are the registry's, as ``seu-bench list`` shows them, and
results are those of ``results/published/evidence``.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from scripts.evidence.formatting import heading, mean, table, template
from scripts.evidence.runs import EVIDENCE, ROOT
from seu_bench.cli.list import PROTOCOL_DEFAULT, describe_entry, option_rows
from seu_bench.engine.resolve import inputs_of
from seu_bench.plugin.registry import PACKAGE, Kind, Registry
from seu_bench.results.building import read_leaderboards
from seu_bench.results.leaderboard import Leaderboard, Row, mean_and_deviation
from seu_bench.results.record_metrics import known_metric
from seu_bench.utils.text import escape_markdown

#: Folders of pages within ``docs``: a page for each name of the first two, for each kind of the last.
KINDS: Final = ("methods", "benchmarks", "parts")
_PARTS: Final = ("backbones", "encoders", "searchers", "creators", "spaces")
_HERE: Final = Path(__file__).parent
#: Metrics that are shown with their deviation, and without.
_ACCURACIES: Final = ("acc", "forgetting")
_SIZES: Final = ("memory_bytes", "params_total", "train_flops")
_COLUMNS: Final = ("seeds", *map(heading, (*_ACCURACIES, *_SIZES)))
#: A family and its strategies in the README's table, and a heading that names a strategy.
_FAMILY: Final = re.compile(
    r"^\| (?:\[(?P<link>[^\]]+)\]\(docs/(?P<page>[^)]+)\)|(?P<plain>[^|]+)) \| (?P<names>.*) \|$", re.M
)
_HEADING: Final = re.compile(r"^##+ (.*`.*)$", re.MULTILINE)
#: Pages of sets whose names do not begin with that of their page.
_SETS: Final = {"compiled": "compilation", "compiled_eager": "compilation", "probes": "data_path"}


class Family(NamedTuple):
    """Strategies of one family, and the page that describes them, empty where there is none."""

    name: str
    page: str
    strategies: list[str]


class Result(NamedTuple):
    """A row of a published leaderboard, and a link to the page about its set of records."""

    evidence: str
    board: Leaderboard
    row: Row


def write_registered(sources: Path) -> None:
    """Write the home page and ``docs/methods``, ``docs/benchmarks`` and ``docs/parts``.

    Args:
        sources: folder of the site's sources.
    """
    registry, found = Registry(), published_results()
    shutil.copyfile(_HERE / "home.md", sources / "index.md")
    for kind in KINDS:
        (sources / "docs" / kind).mkdir()

    def write(page: str, name: str, **values: Any) -> None:
        made = template(f"{name}.md.jinja", _HERE / "templates")
        shown = made.render(text=escape_markdown, sentence=_sentence, **values)
        (sources / "docs" / f"{page}.md").write_text(shown, encoding="utf-8")

    methods = _described(registry.kinds["strategies"])
    families = read_families(methods)
    for family in families:
        for name in family.strategies:
            factory, own = registry.strategies[name].factory, [it for it in found if it.row.record.strategy == name]
            write(
                f"methods/{name}",
                "method",
                it=methods[name],
                family=family,
                place=described_in(name, family),
                samples=_samples(factory),
                is_reference=methods[name]["reference"] and not getattr(factory, "reference_components", {}),
                command=_command(methods[name], own),
                results=_of_method(own, registry),
                options=_options(methods[name]),
            )
    benchmarks = _described(registry.kinds["benchmarks"])
    for name, it in benchmarks.items():
        it["scenario"] = registry.benchmarks[name].factory.load().stream.scenario
        own = [result for result in found if result.board.benchmark == name]
        write(f"benchmarks/{name}", "benchmark", it=it, results=_of_benchmark(own, methods))
    for kind in _PARTS:
        described = _described(registry.kinds[kind])
        write(f"parts/{kind}", "parts", kind=kind, parts=[(it, _options(it)) for it in described.values()])
    write("methods/index", "methods", families=families, methods=methods)
    write("benchmarks/index", "benchmarks", benchmarks=benchmarks)
    write("parts/index", "part_kinds", kinds=_PARTS)


def read_families(strategies: Iterable[str]) -> list[Family]:
    """Read the families of strategies from the README, whose table a test holds to the registry."""
    known, lines = set(strategies), (ROOT / "README.md").read_text(encoding="utf-8")
    rows = _FAMILY.finditer(lines.partition("## Methods")[2].partition("\n## ")[0])
    found = [(row, [name for name in re.findall(r"`(\w+)`", row["names"]) if name in known]) for row in rows]
    return [Family(row["link"] or row["plain"], row["page"] or "", names) for row, names in found if names]


def described_in(name: str, family: Family) -> str:
    """The place within ``docs`` that describes a strategy: a page or a heading of its name, or its family's page."""
    if (ROOT / "docs" / "explanation" / f"{name}.md").exists():
        return f"explanation/{name}.md"
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        for title in _HEADING.findall(page.read_text(encoding="utf-8")):
            if f"`{name}`" in title:
                return f"reference/{page.name}#{slug(title)}"
    return family.page or "reference/strategies.md"


def slug(title: str) -> str:
    """The anchor of a heading, as forges make it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def published_results() -> list[Result]:
    """Every ranked row of the published records, by benchmark, protocol, set and accuracy; of two sets, once."""
    pages = [path.stem for path in (ROOT / "docs" / "evidence").glob("*.md")]
    found: dict[tuple[str, ...], Result] = {}
    for folder in sorted(path.parent for path in EVIDENCE.glob("*/records.jsonl")):
        page = _SETS.get(folder.name) or next((it for it in pages if folder.name.startswith(it)), "reproduction")
        link = f"[{folder.name}](../evidence/{page}.md)"
        for board in read_leaderboards(folder).boards:
            for row in board.rows:
                runs = (board.title, *row.run_ids.values())
                found.setdefault(runs, Result(link, board, row))
    return sorted(found.values(), key=lambda it: (it.board.title, it.evidence, -(it.row.mean("acc") or 0)))


def _described(kind: Kind[Any]) -> dict[str, dict[str, Any]]:
    """What ``seu-bench list`` tells of each name that comes with seu-bench."""
    return {name: describe_entry(kind, name) for name, entry in kind.items() if entry.package == PACKAGE}


def _options(it: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Tables of an entry's own options, and of those that protocols set, with a title each; those without any are left
    out."""
    rows = option_rows(it) if it.get("options") else []
    shown = [(f"`{name}`", *map(escape_markdown, others)) for name, *others in rows]
    own = [row for row in shown if row[2] != PROTOCOL_DEFAULT]
    usual = [row[:2] + row[3:] for row in shown if row[2] == PROTOCOL_DEFAULT]
    tables = [("Options", table(("option", "type", "default", "meaning"), own, texts=4))] if own else []
    heads = ("option", "type", "meaning")
    return tables + ([("Options that protocols set", table(heads, usual, texts=3))] if usual else [])


def _samples(factory: Any) -> str:
    known = inputs_of(factory, factory.options())
    if known is not None:
        return ", ".join({"image": "images"}.get(kind, kind) for kind in known)
    return "those of its search space" if factory.components else "those of its network"


def _command(it: Mapping[str, Any], results: Iterable[Result]) -> str:
    """The words behind ``seu-bench run``: on digits, unless it was published on pretrained networks alone."""
    pretrained = [result.board.benchmark for result in results if result.board.pretrained is not None]
    if pretrained and len(pretrained) == len(list(results)):
        return f"--strategy {it['name']} --benchmark {pretrained[0]}"
    scenario = "" if "task" in (it["scenarios"] or ("task",)) else f" -o benchmark.stream.scenario={it['scenarios'][0]}"
    return f"--strategy {it['name']} --benchmark split_digits{scenario}"


def _line(name: str, row: Row) -> list[str]:
    """Name, with what tells a row apart from others of its strategy in its leaderboard, then seeds and metrics."""
    text = row.configuration.removeprefix(row.record.strategy).strip(" +")
    text = (text[1:-1] if text.startswith("(") else text).replace("|", "\\|")
    measured = [mean_and_deviation(known_metric(name), row.summary(name)) for name in _ACCURACIES]
    sizes = [mean(row, name, interval=False) for name in _SIZES]
    return [f"{name} `{text}`" if text else name, str(row.seeds), *measured, *sizes]


def _of_method(results: Iterable[Result], registry: Registry) -> str:
    """A table of a method's published rows."""
    lines = []
    for evidence, board, row in results:
        name = escape_markdown(board.benchmark)
        name = f"[{name}](../benchmarks/{name}.md)" if board.benchmark in registry.benchmarks else name
        lines.append(_line(f"{name}, {_protocol(board)}, {evidence}", row))
    return table(("benchmark, protocol, records, configuration", *_COLUMNS), lines) if lines else ""


def _of_benchmark(results: Iterable[Result], methods: Mapping[str, Any]) -> dict[str, str]:
    """A table for each leaderboard of a benchmark, by its protocol and set."""
    tables: dict[str, list[list[str]]] = {}
    for evidence, board, row in results:
        name, mark = escape_markdown(row.record.strategy), "" if row.reference is None else " ○"
        name = f"[{name}](../methods/{name}.md)" if row.record.strategy in methods else name
        lines = tables.setdefault(f"Protocol {_protocol(board)}, records {evidence}", [])
        lines.append(_line(f"{name}{mark}", row))
    return {place: table(("method, configuration", *_COLUMNS), lines) for place, lines in tables.items()}


def _protocol(board: Leaderboard) -> str:
    return board.protocol + (f", {board.tasks} tasks" if board.tasks else "")


def _sentence(text: str) -> str:
    return f"{escape_markdown(text[:1].upper() + text[1:]).rstrip('.')}."
