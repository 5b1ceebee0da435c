"""Labels of configurations, reasons why a record is not ranked, and plain values as canonical text."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic_core import to_json

from seu_bench.config.options import format_option
from seu_bench.results.scenarios import other_overrides

if TYPE_CHECKING:
    from seu_bench.results.record import Record

#: Prefix of options in a label, and what those have in common whose options are compared.
_Group: TypeAlias = tuple[str, str, str | None]


def why_not_ranked(record: Record) -> str | None:
    """Return why a record enters no leaderboard; ``None`` if it does."""
    if record.may_be_ranked and record.data_fingerprint:
        return None
    reasons = {
        f"the run is {record.status}, not finished": record.status != "finished",
        f"protocol {record.protocol!r} is never ranked": not record.ranked,
        "synthetic data": record.synthetic,
        "images were limited with --limit": record.limit is not None,
        "measured on validation images": record.evaluation != "test",
        "only the first tasks were learned": record.first_tasks is not None,
        "a task has one class only, and is 100 % by construction": record.has_one_class_task,
        "no data fingerprint": not record.data_fingerprint,
    }
    return "; ".join(reason for reason, holds in reasons.items() if holds) or "it may not be ranked"


class CanonicalTexts:
    """Convert plain values to text that is equal where they are, whatever the order of their keys.

    Values seen before are looked up: of ten thousand records most have settings that others have as well.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, str] = {}

    def __call__(self, value: Any) -> str:
        """The text of a value as it may be in a JSON file."""
        try:
            key = to_json(value)  # much faster than json.dumps, but in the order in which the keys are
        except ValueError:  # half of a surrogate pair, which only records made in Python can hold
            return json.dumps(value, sort_keys=True)
        if key not in self._known:
            self._known[key] = json.dumps(value, sort_keys=True)
        return self._known[key]


def protocol_settings(record: Record) -> dict[str, Any]:
    """The protocol's settings without its options by strategy, which are in the record's own options."""
    owners = ("strategies", "searchers", "creators")
    return {key: value for key, value in record.protocol_settings.items() if key not in owners}


def configuration_labels(records: Sequence[Record]) -> list[str]:
    """Label each record of a leaderboard: strategy, searcher and creator, then the options in which it differs.

    An option is named where records of the same choice differ in it, and not where it is ``None``, left to the
    protocol. The time grows with the number of records only.
    """
    parts, text = [_parts(record) for record in records], CanonicalTexts()
    values: dict[tuple[_Group, str], list[str]] = defaultdict(list)
    for group, own in (item for choices in parts for item in choices.items()):
        for key, value in own.items():
            values[group, key].append(text(value))
    sizes = Counter(group for choices in parts for group in choices)
    telling = {place for place, texts in values.items() if len(texts) < sizes[place[0]] or len(set(texts)) > 1}
    return [_label(record, choices, telling) for record, choices in zip(records, parts, strict=True)]


def _parts(record: Record) -> dict[_Group, Mapping[str, Any]]:
    overrides = json.dumps(other_overrides(record), sort_keys=True)
    return {
        ("", record.strategy, None): record.options,
        ("searcher.", record.strategy, record.searcher): record.searcher_options,
        ("creator.", record.strategy, record.creator): record.creator_options,
        ("protocol.", overrides, None): protocol_settings(record),
    }


def named_overrides(record: Record) -> dict[str, Any]:
    """The overrides of a record's benchmark but for the scenario, which is named apart; groups of classes by name where
    its data set has names of all of them."""
    overrides = other_overrides(record)
    groups = overrides.get("stream.groups")
    names = dict(zip(record.task_order, record.task_class_names, strict=False))
    if not isinstance(groups, list | tuple) or not all(isinstance(group, list | tuple) for group in groups):
        return overrides
    named = [list(names.get(index, ())) for index in range(len(groups))]
    return overrides | ({"stream.groups": named} if [*map(len, named)] == [*map(len, groups)] else {})


def _label(record: Record, parts: Mapping[_Group, Mapping[str, Any]], telling: Set[tuple[_Group, str]]) -> str:
    shown = [
        f"{group[0]}{key}={format_option(value)}"
        for group, own in parts.items()
        for key, value in sorted(own.items())
        if (group, key) in telling and value is not None
    ]
    # What was changed in the benchmark is always shown: it is not what the leaderboard's heading says.
    overrides = named_overrides(record)
    shown += [f"benchmark.{key}={format_option(value)}" for key, value in sorted(overrides.items())]
    if (certainty := record.options.get("infer_task")) and record.scenario != "task":
        inferred = f"infer_task={certainty}"  # it learned the same as with task labels, and answers otherwise
        shown += [] if inferred in shown else [inferred]
    shown += [f"precision={record.precision}"] if record.precision != "float32" else []
    shown += [f"threads={record.threads}"] if record.threads != 1 else []
    shown += [f"{record.stability_decay.get('option')} decided per task"] if record.stability_decay else []
    name = " + ".join(part for part in (record.strategy, record.searcher, record.creator) if part)
    name = f"{name} ({', '.join(shown)})" if shown else name
    return name if record.submitter is None else f"{name} by {record.submitter}"
