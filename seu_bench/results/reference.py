"""Metrics that need a *reference*: a run of the strategy ``joint``, one model trained once on the whole stream.

A record knows no other record, so that these metrics are ``None`` in it. Leaderboards and ``load_records`` find them
here, from the records of one results folder.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from seu_bench.config.common_options import BackboneOptions
from seu_bench.metrics import RELATIVE, intransigence, percent_of_joint
from seu_bench.results.labels import CanonicalTexts, protocol_settings, why_not_ranked
from seu_bench.results.record import Record
from seu_bench.results.record_metrics import whole_matrix

#: The strategy whose runs are references; its options are ``BackboneOptions``.
JOINT: Final = "joint"

#: The runs of one configuration by their seeds.
_Runs: TypeAlias = Mapping[int, Record]


def compare_with_joint(records: Sequence[Record]) -> list[Record]:
    """The records in the same order, with ``intransigence`` and ``percent_of_joint`` among their metrics.

    The reference of a run is the run of ``joint`` with the same benchmark, version, protocol, data fingerprint,
    benchmark overrides, protocol settings, seed and network. The network is what the options ``backbone`` and
    ``width`` say; where a strategy has no such option, or it is ``None``, the default backbone and the protocol's
    width count. Where several configurations of ``joint`` fit, the one counts whose other options are all at their
    defaults, or as the protocol sets them; without such a one there is no reference. Of several records of it the
    latest counts.

    Args:
        records: of any benchmarks; those that may not be ranked neither are nor have a reference.

    Returns:
        Copies; both metrics are ``None`` where there is no reference, or something was not measured.
    """
    text = CanonicalTexts()
    references = _references(records, text)
    return [
        record.model_copy(update={"metrics": record.metrics | _relative_metrics(record, references, text)})
        for record in records
    ]


def _relative_metrics(record: Record, references: Mapping[str, _Runs], text: CanonicalTexts) -> dict[str, float | None]:
    ranked = why_not_ranked(record) is None
    joint = references.get(text(_circumstances(record)), {}).get(record.seed) if ranked else None
    if joint is None:
        return dict.fromkeys(RELATIVE)
    matrix = whole_matrix(joint)
    return {
        "intransigence": intransigence(whole_matrix(record), matrix[-1] if matrix else ()),
        "percent_of_joint": percent_of_joint(record.metrics.get("acc"), joint.metrics.get("acc")),
    }


def _references(records: Sequence[Record], text: CanonicalTexts) -> dict[str, _Runs]:
    """The runs to compare with, by what :func:`_circumstances` says."""
    fitting: dict[str, dict[str, dict[int, Record]]] = defaultdict(lambda: defaultdict(dict))
    for record in sorted(records, key=lambda record: (record.started, record.run_id)):
        if record.strategy == JOINT and why_not_ranked(record) is None:
            fitting[text(_circumstances(record))][text(_other_options(record))][record.seed] = record
    return {key: runs for key, choices in fitting.items() if (runs := _plain(list(choices.values()))) is not None}


def _plain(configurations: Sequence[_Runs]) -> _Runs | None:
    """The only configuration, or the only one at its defaults."""
    plain = [runs for runs in configurations if _at_defaults(next(iter(runs.values())))]
    found = configurations if len(configurations) == 1 else plain
    return found[0] if len(found) == 1 else None


def _at_defaults(joint: Record) -> bool:
    """Whether a run of ``joint`` has, but for its network, the options that it has if no user sets any."""
    protocol = _mapping(_mapping(joint.protocol_settings.get("strategies")).get(JOINT))
    defaults = {name: field.default for name, field in BackboneOptions.model_fields.items()} | protocol
    return all(value == defaults.get(name) for name, value in _other_options(joint).items())


def _other_options(joint: Record) -> dict[str, Any]:
    """All options but those of the network: they may be given and be the defaults nevertheless."""
    return {name: value for name, value in joint.options.items() if name not in ("backbone", "width")}


def _circumstances(record: Record) -> list[Any]:
    """What a run and its reference have in common besides the seed, as plain values that are equal where this is."""
    place = [record.benchmark, record.benchmark_version, record.protocol, record.data_fingerprint]
    return [place, record.benchmark_overrides, protocol_settings(record), *_network(record)]


def _network(record: Record) -> tuple[Any, Any]:
    """Backbone and width factor."""
    width = record.options.get("width")
    if width is None:
        width = _mapping(record.protocol_settings.get("model")).get("width")
    return record.options.get("backbone", BackboneOptions.model_fields["backbone"].default), width


def _mapping(value: Any) -> dict[str, Any]:
    """``value``, or nothing: a record may hold anything in its settings."""
    return value if isinstance(value, dict) else {}
