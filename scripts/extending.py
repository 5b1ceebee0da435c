"""Which strategies learn further tasks: docs/reference/extending.md, from what each of them does on made-up images.

python scripts/extending.py            # print the page
python scripts/extending.py --write    # write it
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from seu_bench.config.common_options import BackboneOptions, TaskInferenceOptions
from seu_bench.config.streams import SCENARIOS, Scenario
from seu_bench.engine.resolve import scenarios_of
from seu_bench.testing.contract import check_extended
from seu_bench.testing.trial import Trial, load_registry
from seu_bench.utils.hardware import computing_with

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "reference" / "extending.md"

#: Options with which little is computed, where a strategy has them.
QUICK: Final = {"generator_iterations": 100, "trials": 2}

HEAD: Final = """# Strategies that learn further tasks

[`seu-bench extend`](../guides/extending.md) teaches a finished run one more task. **yes**: what it then is, is bit by
bit what a run of all tasks would be, in weights, memories, answers and image passes. `python scripts/extending.py
--write` makes this page: each strategy learns two tasks of made-up images, then a third one, and is compared with one
that knew of three. The [contract of strategies](../guides/plugins.md) does the same with any plugin.

*path*: each task has a path of its own, and `-o infer_task=entropy` chooses among them; a dash: the scenario is not
learned. What is no `Method` cannot be extended, the strategies of [Avalanche](avalanche.md) among them.

| strategy | task | class | domain | why not |
| --- | --- | --- | --- | --- |
"""


def rows() -> Iterator[str]:
    """Yield a row of the table for each registered strategy."""
    registry = load_registry()
    for name, entry in sorted(registry.strategies.items()):
        factory, cells, reasons = entry.factory, list[str](), dict[str, None]()
        infers = issubclass(factory.options, TaskInferenceOptions)
        for scenario in SCENARIOS:
            declared = scenario in scenarios_of(factory)
            if not declared and not infers:
                cells.append("-")
                continue
            takes_backbone = issubclass(factory.options, BackboneOptions)
            options = {**getattr(factory, "check_options", {}), **({"backbone": "mlp"} if takes_backbone else {})}
            options |= {key: value for key, value in QUICK.items() if key in factory.options.model_fields}
            reason = _reason(name, options, scenario, infers=not declared)
            cells.append("no" if reason else "yes" if declared else "yes, *path*")
            reasons |= {reason: None} if reason else {}
        yield f"| `{name}` | {' | '.join(cells)} | {'; '.join(reasons)} |"


def _reason(strategy: str, options: dict[str, Any], scenario: Scenario, *, infers: bool) -> str | None:
    options["benchmark.stream.input.normalise"] = "first_task"
    if infers:
        options["infer_task"] = "entropy"
    found = check_extended(Trial(strategy, options, scenario=scenario))
    return None if found is None else re.sub(r"(-o \w+=)\d+", r"`\1N`", found)


def page() -> str:
    """Return the page."""
    with computing_with(1):
        return HEAD + "\n".join(rows()) + "\n"


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    text = page()
    if parser.parse_args().write:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
