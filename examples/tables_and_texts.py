"""Learn streams of numbers and of texts: scikit-learn's digits as a table, and which package a docstring comes from.

Run it by ``python examples/tables_and_texts.py``; it takes minutes, and prints a leaderboard of each stream.
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
import zlib
from itertools import islice
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import seu_bench

#: Packages that seu-bench needs itself; words of a docstring that are read, and the size of the vocabulary.
PACKAGES = ("sklearn", "torch", "matplotlib", "pandas", "scipy", "networkx")
WORDS, VOCABULARY, MOST = 48, 4000, 500
Scenario: TypeAlias = Literal["task", "class"]
STRATEGIES = ("naive", "replay", "ewc", "seu")


def docstrings(package: str) -> list[str]:
    """The first docstrings of a package's functions and classes, of files in alphabetical order."""
    spec = importlib.util.find_spec(package)
    files = sorted(Path(spec.origin or "").parent.rglob("*.py")) if spec else []
    trees = (ast.parse(file.read_text(encoding="utf-8")) for file in files if "test" not in str(file))
    nodes = (it for tree in trees for it in ast.walk(tree) if isinstance(it, ast.FunctionDef | ast.ClassDef))
    texts = (ast.get_docstring(node) or "" for node in nodes)
    return list(islice((text for text in texts if len(text.split()) >= WORDS), MOST))


def tokens(text: str) -> list[int]:
    """Words by a hash; 0 for the names of the packages, which would tell them, and behind the end."""
    words = re.findall(r"[a-z]+", text.lower())[:WORDS]
    ids = [0 if word in PACKAGES else 1 + zlib.crc32(word.encode()) % (VOCABULARY - 1) for word in words]
    return ids + [0] * (WORDS - len(ids))


def stream(name: str, x: NDArray[np.generic], y: NDArray[np.generic], scenario: Scenario) -> str:
    """The file of a benchmark of two classes a task."""
    parts = train_test_split(x, y, test_size=0.25, random_state=0, stratify=y)
    classes = sorted(set(y.tolist()))
    tasks = []
    for pair in (classes[at : at + 2] for at in range(0, len(classes), 2)):
        train, test = np.isin(parts[2], pair), np.isin(parts[3], pair)
        tasks.append((parts[0][train], parts[2][train], parts[1][test], parts[3][test]))
    return seu_bench.stream(tasks, name=name, scenario=scenario)


def main(results: str = "results", protocol: str = "quick", seeds: str = "0-2") -> None:
    """Learn each stream with each strategy, and show the leaderboards."""
    digits = load_digits()
    texts = [docstrings(package) for package in PACKAGES]
    ids = np.array([tokens(text) for each in texts for text in each])
    labels = np.repeat(PACKAGES, [len(each) for each in texts])
    scenarios: tuple[Scenario, ...] = ("task", "class")
    for scenario in scenarios:
        for name, x, y in (("table", digits.data.astype(np.float32), digits.target), ("texts", ids, labels)):
            benchmark = stream(f"{name}_{scenario}", x, y, scenario)
            infer = {"infer_task": "entropy"} if scenario == "class" else {}
            for strategy in STRATEGIES:
                own = {"space": "dense", **infer} if strategy == "seu" else {}
                given: dict[str, Any] = {
                    "benchmark": benchmark,
                    "protocol": protocol,
                    "seeds": seeds,
                    "results": results,
                }
                seu_bench.sweep(strategy=strategy, options=own, **given)
    columns = ["benchmark", "configuration", "acc_mean", "acc_std", "params_total_mean"]
    print(seu_bench.leaderboard(results).frame[columns].to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
