"""One name in full: ``seu-bench list KIND NAME``."""

from __future__ import annotations

import json
import re

import pytest
from support.commands import Command

from seu_bench.plugin.registry import Registry


def test_every_name_can_be_shown(command: Command) -> None:
    """Also those that are not available, which say why and what to do."""
    for plural, kind in Registry().kinds.items():
        for name in (*list(kind)[:3], *list(kind.unavailable)[:1]):
            document = json.loads(command("list", plural, name, "--format", "json").out)
            assert (document["name"], document["kind"]) == (name, kind.singular)
            shown = command("list", plural, name)
            assert shown.status == 0 and f"{kind.singular} {name}" in shown.out
            for option in document.get("options", ()):
                assert option["help"] and option["type"] and option["name"] in shown.out


def test_options_have_type_range_and_how_to_give_them(command: Command) -> None:
    document = json.loads(command("list", "searchers", "darts", "--format", "json").out)
    options = {option["name"]: option for option in document["options"]}
    assert (options["epochs"]["type"], options["epochs"]["range"]) == ("int", "> 0")
    assert options["momentum"]["range"] == ">= 0, < 1"
    assert options["order"]["choices"] == [1, 2]
    assert options["epochs"]["given_as"] == "-o searcher.epochs=VALUE"
    assert "value" not in options["epochs"]
    out = command("list", "loggers", "tensorboard").out
    assert "--log-option tensorboard.OPTION=VALUE" in out and "as the protocol says" not in out


def test_values_in_runs_of_a_benchmark(command: Command) -> None:
    """Each with where it comes from: the protocol, a tuned file, a preset, or the default."""
    asked = ("list", "strategies", "ewc", "--benchmark", "pmnist", "--protocol", "quick", "--format", "json")
    options = {option["name"]: option for option in json.loads(command(*asked).out)["options"]}
    assert (options["epochs"]["value"], options["epochs"]["source"]) == (8, "protocol quick")
    assert options["ewc_lambda"]["source"] == "tuned pmnist-quick-ewc"
    assert (options["fisher"]["value"], options["fisher"]["source"]) == ("batch", "default")
    assert re.search(r"^ epochs +int > 0 +8 +protocol quick ", command(*asked[:-2]).out, re.MULTILINE)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("strategies", "ewk"), "did you mean 'ewc'?"),
        (("metrics", "acc", "--protocol", "smoke"), "changes no option of a metric"),
        (("strategies", "--protocol", "smoke"), "for one name"),
        (("strategies", "ewc", "--benchmark", "pmist"), "did you mean 'pmnist'?"),
        (("strategies", "ewc", "--protocol", "smok"), "did you mean 'smoke'?"),
    ],
)
def test_refused(command: Command, arguments: tuple[str, ...], said: str) -> None:
    answer = command("list", *arguments)
    assert (answer.status, answer.out) == (2, "")
    assert said in answer.err


def test_a_benchmark_has_its_protocols(command: Command) -> None:
    document = json.loads(command("list", "benchmarks", "split_fashion", "--format", "json").out)
    protocols = {it["name"]: it["ranked"] for it in document["protocols"]}
    assert protocols["quick"] and not protocols["smoke"]
    assert document["default_protocol"] in protocols
    assert re.search(r"^ smoke +never ranked", command("list", "benchmarks", "split_fashion").out, re.MULTILINE)
