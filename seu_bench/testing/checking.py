"""Contracts on installed plugins without a test file, for ``seu-bench check-plugin``: pytest runs and reports them."""

from __future__ import annotations

import os
import pkgutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from seu_bench.errors import OptionError
from seu_bench.plugin.code import Subject
from seu_bench.utils.progress import hide_progress

#: Class in ``seu_bench.testing`` of each kind's contract, and the attribute that takes the registered name. Factories
#: of searchers, creators and spaces name their own, ``contract``; executors and commands have none.
CONTRACTS: Final[Mapping[str, tuple[str, str]]] = {
    "strategy": ("StrategyContract", "strategy"),
    "searcher": ("", "searcher"),
    "creator": ("", "creator"),
    "space": ("", "space"),
    "backbone": ("BackboneContract", "backbone"),
    "encoder": ("EncoderContract", "encoder"),
    "benchmark": ("BenchmarkContract", "benchmark"),
    "data set": ("DatasetContract", "dataset"),
    "metric": ("MetricContract", "metric"),
    "logger": ("LoggerContract", "logger"),
}


def check(
    asked: Sequence[tuple[Subject, Mapping[str, Any]]], pattern: str = "", plugins: Sequence[object] = ()
) -> pytest.ExitCode:
    """Run the contracts of subjects in pytest, which prints how each test ended and what is wrong.

    Args:
        asked: subjects of kinds of :data:`CONTRACTS`, each with options that come over its ``check_options``.
        pattern: run only checks whose names match, as pytest's ``-k`` does; empty: all.
        plugins: of pytest, e.g. to read its reports.

    Raises:
        OptionError: the pattern cannot be read, or matches no check; or no subject has a contract.
    """
    source, names = "", dict[str, None]()
    for number, (subject, options) in enumerate(asked):
        if (path := contract_of(subject)) is None:
            continue
        names |= dict.fromkeys(it[5:] for it in dir(pkgutil.resolve_name(path)) if it.startswith("test_"))
        factory, (module, _, contract) = subject.entry.factory, path.partition(":")
        scenarios: tuple[str, ...] = getattr(factory, "scenarios", ())
        attributes = {
            CONTRACTS[subject.kind][1]: subject.entry.name,
            "options": {**getattr(factory, "check_options", {}), **options},
            "scenario": scenarios[0] if scenarios and "task" not in scenarios else "task",
            "exact_passes": False,  # only the author's own test can ask for exact estimates
        }
        title = "".join(letter if letter.isalnum() else "_" for letter in f"Test_{subject.kind}_{subject.entry.name}")
        source += f"import {module}\nclass {title}_{number}({module}.{contract}):\n"
        source += "".join(f"    {name} = {value!r}\n" for name, value in attributes.items())
    if not source:
        what = f"nothing is known by which to check {' and '.join(str(subject) for subject, _ in asked)}"
        raise OptionError(what, remedy="give its factory the attribute contract, 'package.module:Class'")
    with tempfile.TemporaryDirectory() as folder, hide_progress(), pytest.MonkeyPatch.context() as patch:
        # A name of its own: Python keeps modules by name.
        file = Path(folder) / f"test_{Path(folder).name}.py"
        file.write_text(source, encoding="utf-8")
        # Ignore the configuration of the working folder, and write nothing into it; leave sys.path as it is.
        settings = ["-c", os.devnull, "--rootdir", folder, "-p", "no:cacheprovider", "--basetemp", f"{folder}/tmp"]
        settings += ["--import-mode=importlib", "--no-header", "--disable-warnings", "--tb=short", "-v", "-rs"]
        patch.delenv("PYTEST_ADDOPTS", raising=False)
        status = pytest.ExitCode(pytest.main([*settings, "-k", pattern, str(file)], plugins=[*plugins]))
    if status == pytest.ExitCode.INTERRUPTED:
        raise KeyboardInterrupt
    if status in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED):
        what = f"no check matches {pattern!r}, or it cannot be read"
        raise OptionError(what, where="-k", remedy=f"join names by 'or': {', '.join(names)}")
    return status


def contract_of(subject: Subject) -> str | None:
    """Return ``package.module:Class`` of the contract of a subject; ``None``: it has none."""
    usual = CONTRACTS.get(subject.kind, ("", ""))[0]
    return getattr(subject.entry.factory, "contract", f"seu_bench.testing:{usual}" if usual else None)
