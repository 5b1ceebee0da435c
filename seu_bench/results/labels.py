"""Records in words: labels of configurations, scenarios, why a record is not ranked, what all rows have in common."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from seu_bench.config.benchmark import PLACES
from seu_bench.config.options import format_option, split_by_prefix
from seu_bench.config.streams import Scenario, title_of
from seu_bench.results.record import image_budget, learner_code_text

if TYPE_CHECKING:
    from seu_bench.results.record import Record

#: Prefixes of options by the kind of their component, and sections of a protocol that decide what nobody set.
_PREFIXES: Final = {"strategies": "", "searchers": "searcher", "creators": "creator"}
_SECTIONS: Final = {"strategies": ("training", "model"), "searchers": ("search",), "creators": ("creation",)}
#: Options that are a number of images.
_BUDGETS: Final = ("memory", "mem_size")
#: Keys of a benchmark that decide no result of it: the scenario, which is told elsewhere, and where its data lie.
_NO_OVERRIDES: Final = re.compile(rf"stream\.scenario|datasets\.[^.]+\.(?:{'|'.join(PLACES)})")
_SORTED: Final = json.JSONEncoder(sort_keys=True)
_SCENARIOS: Final[Mapping[Scenario, str]] = {
    "task": "the task of a test image is known, and the answer is one of its classes",
    "class": "the task of a test image is not known, and the answer is a class of any task learned so far",
    "domain": "the task of a test image is not known, and the answer is one of the classes that all tasks share",
}


def adjective(scenario: Scenario) -> str:
    """Return what streams of a scenario are called, e.g. ``class-incremental``."""
    return f"{scenario}-incremental"


def with_scenario(text: str, scenario: Scenario) -> str:
    """Return a text, and behind it what streams of the scenario are called where that is not ``task``."""
    return text if scenario == "task" else f"{text}, {adjective(scenario)}"


def definition(scenario: Scenario) -> str:
    """Return what streams of a scenario are called, and what it means."""
    return f"{adjective(scenario)}: {_SCENARIOS[scenario]}"


def benchmark_title(record: Record) -> str:
    """Return the name of a record's benchmark, with the scenario where that is neither ``task`` nor in the name."""
    return title_of(record.benchmark, record.scenario)


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
    return "; ".join(reason for reason, holds in reasons.items() if holds)


def canonical(value: Any) -> str:
    """Convert a plain value to text that is equal where the value is, whatever the order of keys."""
    return _SORTED.encode(value)


def as_mapping(value: Any) -> dict[Any, Any]:
    """Return a section of a record, which may hold anything; empty where it is none."""
    return value if isinstance(value, dict) else {}


def protocol_settings(record: Record) -> dict[str, Any]:
    """Return what is set by the protocol, but for options by strategy, which are in the record's own: an older version
    leaves out what a later one says is not set."""
    own = {key: value for key, value in record.protocol_settings.items() if key not in _PREFIXES}
    return {key: found for key, value in own.items() if (found := _set_values(value)) not in (None, {})}


def _set_values(value: Any) -> Any:
    return {key: it for key, it in value.items() if it is not None} if isinstance(value, dict) else value


def other_overrides(record: Record) -> dict[str, Any]:
    """Return what a run changed in its benchmark besides its scenario and where its data lie."""
    return {key: it for key, it in record.benchmark_overrides.items() if not _NO_OVERRIDES.fullmatch(key)}


def named_overrides(record: Record) -> dict[str, Any]:
    """Return :func:`other_overrides`, groups of classes by name where known."""
    overrides = other_overrides(record)
    groups = overrides.get("stream.groups")
    names = dict(zip(record.task_order, record.task_class_names, strict=False))
    if not isinstance(groups, list | tuple) or not all(isinstance(group, list | tuple) for group in groups):
        return overrides
    named = [list(names.get(index, ())) for index in range(len(groups))]
    return overrides | ({"stream.groups": named} if [*map(len, named)] == [*map(len, groups)] else {})


def components(record: Record) -> dict[tuple[str, str | None], tuple[str, Mapping[str, Any]]]:
    """Return the prefix of the options of strategy, searcher and creator, and these, by kind and name."""
    return {
        ("strategies", record.strategy): ("", record.options),
        ("searchers", record.searcher): ("searcher.", record.searcher_options),
        ("creators", record.creator): ("creator.", record.creator_options),
    }


def protocol_layer(record: Record, kind: str, name: str | None) -> dict[str, Any]:
    """Return the options that a record's protocol, or its tuning, chose for a strategy, searcher or creator."""
    tuned = split_by_prefix(record.tuned.options)[_PREFIXES[kind]] if record.tuned else {}
    return as_mapping(as_mapping(record.protocol_settings.get(kind)).get(name)) | tuned


def configuration_labels(records: Sequence[Record]) -> list[str]:
    """Label each record of a leaderboard: strategy, searcher and creator, then the options in which records of the same
    choice differ, or that were given and are not among :func:`shared_changes`; images in memory where they differ.
    """
    parts = [_parts(record) for record in records]
    values: dict[tuple[Any, str], list[str]] = defaultdict(list)
    for group, own in (item for choices in parts for item in choices.items()):
        for key, value in own.items():
            values[group, key].append(canonical(value))
    sizes = Counter(group for choices in parts for group in choices)
    telling = {place for place, texts in values.items() if len(texts) < sizes[place[0]] or len(set(texts)) > 1}
    shared, budgets = shared_changes(records), unequal_budgets(records)
    labels = []
    for record, choices in zip(records, parts, strict=True):
        given = changed_options(record).keys() - shared if record.given_options else set()
        budget = image_budget(record) if budgets else None
        shown = [
            f"{group[0]}{key}={format_option(value)}"
            for group, own in choices.items()
            for key, value in sorted(own.items())
            if ((group, key) in telling or f"{group[0]}{key}" in given)
            and value is not None
            and not (key in _BUDGETS and value == budget)
        ]
        shown += [f"{budget} images"] if budget is not None else []
        shown += [f"{key}={format_option(value)}" for key, value in _other_changes(record).items()]
        if (certainty := record.options.get("infer_task")) and record.scenario != "task":
            shown.append(f"infer_task={certainty}")  # it learned the same as with task labels, and answers otherwise
        label = f"{record.learner} ({', '.join(dict.fromkeys(shown))})" if shown else record.learner
        labels.append(label if record.submitter is None else f"{label} by {record.submitter}")
    return labels


def _parts(record: Record) -> dict[tuple[str, str, str | None], Mapping[str, Any]]:
    """Options by their prefix and by what those have in common whose options are compared."""
    return {
        ("", record.strategy, None): record.options,
        ("searcher.", record.strategy, record.searcher): record.searcher_options,
        ("creator.", record.strategy, record.creator): record.creator_options,
        ("protocol.", canonical(other_overrides(record)), None): protocol_settings(record),
        ("", record.learner, "code"): {"code": learner_code_text(record)},
    }


def changed_options(record: Record) -> dict[str, Any]:
    """Return the options that were given and are not as the protocol, or its tuning, has them, by name as ``-o`` takes
    them. Of older records, which do not say what was given, those that the protocol has another value of.
    """
    given, found = record.given_options, {}
    for (kind, part), (prefix, options) in components(record).items():
        sections = [as_mapping(record.protocol_settings.get(section)) for section in _SECTIONS[kind]]
        decided = {key: value for section in sections for key, value in section.items() if value is not None}
        decided |= protocol_layer(record, kind, part)
        for key, value in options.items():
            is_own = key in decided if given is None else f"{prefix}{key}" in given
            if is_own and value is not None and value != decided.get(key):
                found[f"{prefix}{key}"] = value
    return found


def _other_changes(record: Record) -> dict[str, Any]:
    """Changes that a label always names: of one record alone nothing else says them."""
    found = {f"benchmark.{key}": value for key, value in sorted(named_overrides(record).items())}
    return found | {key: ",".join(value) if key == "attach" else value for key, value in record.variant.items()}


def shared_changes(records: Sequence[Record]) -> dict[str, Any]:
    """Return what is not as in the protocol, and the same in all records that have it: options, overrides of the
    benchmark, precision and threads, by name."""
    own = [{f"{p}{key}" for p, options in components(it).values() for key in options} for it in records]
    changed = [changed_options(record) | _other_changes(record) for record in records]
    optional = {name for names in own for name in names}
    shared = {}
    for name, value in sorted({name: value for mine in changed for name, value in mine.items()}.items()):
        having = [mine for names, mine in zip(own, changed, strict=True) if name in names or name not in optional]
        if all(name in mine and canonical(mine[name]) == canonical(value) for mine in having):
            shared[name] = value
    return shared


def unequal_budgets(records: Iterable[Record]) -> tuple[int, ...]:
    """Return the different numbers of images that records keep; empty where they are all the same."""
    found = sorted({budget for record in records if (budget := image_budget(record)) is not None})
    return tuple(found) if len(found) > 1 else ()
