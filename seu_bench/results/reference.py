"""Metrics relative to a *reference*: a run of one model that was trained once, on the whole stream, or of networks that
were each trained on one task alone.

A record knows no other record, so that these metrics are ``None`` in it. Leaderboards and ``load_records`` find them
here, from the records of one results folder.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from seu_bench.config.common_options import BackboneOptions
from seu_bench.results.code import learner_code
from seu_bench.results.labels import CanonicalTexts, protocol_settings, why_not_ranked
from seu_bench.results.metric import Metric, Reference
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import METRICS, complete_matrix, measured_rows
from seu_bench.results.reference_rows import APART, reference_of
from seu_bench.results.scenarios import other_overrides

#: The runs of one configuration by their seeds.
_Runs: TypeAlias = Mapping[int, Record]


def trained_jointly(record: Record) -> bool:
    """Whether a run learned all of its tasks, two or more, at once: it was evaluated only after the last one."""
    last = len(complete_matrix(record)) - 1
    return last > 0 and measured_rows(record) == [last]


def trained_apart(record: Record) -> bool:
    """Whether a run has a network of its own for every task."""
    return reference_of(record) == APART


#: Which runs are the reference of a metric.
_KINDS: Final[Mapping[Reference, Callable[[Record], bool]]] = {
    "jointly": trained_jointly,
    "apart": trained_apart,
}


def compare_with_reference(records: Sequence[Record], metrics: Mapping[str, Metric] = METRICS) -> list[Record]:
    """Compute the relative metrics of records.

    The reference of a run is the run that was trained jointly (:func:`trained_jointly`), or on each task alone
    (:func:`trained_apart`) where the metric says so, with the same benchmark, version, protocol, scenario, data
    fingerprint, benchmark overrides, protocol settings, seed and network. The network is what the options ``backbone``
    and ``width`` say; where a strategy has no such option, or it is ``None``, the default backbone and the protocol's
    width count. Where several configurations fit, the one counts whose other options are all at their defaults, or as
    the protocol sets them; without such a one there is no reference. Of several records of it the latest counts.
    Records that may not be ranked neither are nor have a reference; nor is there one of several versions of its code.

    Returns:
        The records in the same order, or copies of them; relative metrics are ``None`` where there is no reference, or
        something was not measured.
    """
    text = CanonicalTexts()
    relative = {name: metric for name, metric in metrics.items() if metric.relative}
    kinds = {metric.reference for metric in relative.values()}
    references = {kind: _references(records, text, _KINDS[kind]) for kind in kinds}
    found = []
    for record in records:
        values: dict[str, float | int | None] = dict.fromkeys(relative)
        if why_not_ranked(record) is None:
            place = text(_circumstances(record))
            for name, metric in relative.items():
                reference = references[metric.reference].get(place, {}).get(record.seed)
                if reference is not None:
                    values[name] = _value(name, metric, record, reference)
        completed = record.metrics | values
        found.append(record if completed == record.metrics else record.model_copy(update={"metrics": completed}))
    return found


def _value(name: str, metric: Metric, record: Record, reference: Record) -> float | int | None:
    """A relative metric. One that fails costs its own value, with a warning, and no leaderboard."""
    try:
        return metric.beside(record, reference)
    except Exception as error:
        warnings.warn(f"metric {name!r} is excluded: {type(error).__name__}: {error}", RuntimeWarning, stacklevel=2)
        return None


def _references(
    records: Sequence[Record], text: CanonicalTexts, is_reference: Callable[[Record], bool]
) -> dict[str, _Runs]:
    """Reference runs by :func:`_circumstances`: the only configuration there, or the only one with default options."""
    fitting: dict[str, dict[str, dict[int, Record]]] = defaultdict(lambda: defaultdict(dict))
    for record in sorted(records, key=lambda record: (record.started, record.run_id)):
        if why_not_ranked(record) is None and is_reference(record):
            choice = text([record.strategy, _other_options(record), learner_code(record)])
            fitting[text(_circumstances(record))][choice][record.seed] = record
    found: dict[str, _Runs] = {}
    for circumstances, choices in fitting.items():
        plain = [runs for runs in choices.values() if len(choices) == 1 or _at_defaults(next(iter(runs.values())))]
        if len(plain) == 1:
            found[circumstances] = plain[0]
    return found


def _at_defaults(record: Record) -> bool:
    """Whether a run has, but for its network, the options that it has if no user sets any."""
    protocol = _mapping(_mapping(record.protocol_settings.get("strategies")).get(record.strategy))
    defaults = {name: field.default for name, field in BackboneOptions.model_fields.items()} | protocol
    return all(value == defaults.get(name) for name, value in _other_options(record).items())


def _other_options(record: Record) -> dict[str, Any]:
    """All options but those of the network: they may be given and be the defaults nevertheless."""
    return {name: value for name, value in record.options.items() if name not in ("backbone", "width")}


def _circumstances(record: Record) -> list[Any]:
    """Common settings of a run and its reference, besides the seed, as plain values."""
    place = [record.benchmark, record.benchmark_version, record.protocol, record.scenario, record.data_fingerprint]
    width = record.options.get("width")
    if width is None:
        width = _mapping(record.protocol_settings.get("model")).get("width")
    backbone = record.options.get("backbone", BackboneOptions.model_fields["backbone"].default)
    return [place, other_overrides(record), protocol_settings(record), backbone, width, record.submitter]


def _mapping(value: Any) -> dict[str, Any]:
    """``value`` if it is a mapping, else an empty one: a record may hold anything in its settings."""
    return value if isinstance(value, dict) else {}
