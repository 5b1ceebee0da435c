"""Words for a reader, in the terminal as in Markdown: text made harmless, configurations and reasons named."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from seu_bench.options import parse_value

if TYPE_CHECKING:
    from seu_bench.record import Record


def printable(text: str) -> str:
    """``text`` on one line without control characters, which could break a table or drive a terminal."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def escape_markdown(text: str) -> str:
    """``text`` so that Markdown, in a table or not, shows it as it is."""
    text = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = re.sub(r"([\\`*|~$\[\]])", r"\\\1", text)
    # Within a word an underscore is one; elsewhere it would be emphasis.
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", text)


def format_option(value: Any) -> str:
    """An option's value as it could be given with ``-o``: text bare where it would be read back as text."""
    if isinstance(value, str) and value and printable(value) == value and parse_value(value) == value:
        return value
    return json.dumps(value, ensure_ascii=False, sort_keys=True)


def why_not_ranked(record: Record) -> str | None:
    """Why a record enters no leaderboard; ``None`` if it does."""
    reasons = {
        f"the run is {record.status}, not finished": record.status != "finished",
        f"protocol {record.protocol!r} is never ranked": not record.ranked,
        "synthetic data": record.synthetic,
        "images were limited with --limit": record.limit is not None,
        "no data fingerprint": not record.data_fingerprint,
    }
    found = "; ".join(reason for reason, holds in reasons.items() if holds)
    return found or (None if record.may_be_ranked else "it may not be ranked")


def protocol_settings(record: Record) -> dict[str, Any]:
    """The protocol's settings without its options by strategy, which are in the record's own options."""
    owners = ("strategies", "searchers", "creators")
    return {key: value for key, value in record.protocol_settings.items() if key not in owners}


def configuration_label(record: Record, others: Sequence[Record]) -> str:
    """What was chosen, in words: strategy, searcher and creator, then the options that tell it from ``others``.

    Args:
        others: the records beside it in a leaderboard; an option is named where those of the same choice differ in it.
    """
    same = [other for other in others if other.strategy == record.strategy]
    alike = [other for other in others if other.benchmark_overrides == record.benchmark_overrides]
    parts = {
        "": ([other.options for other in same], record.options),
        "searcher.": ([o.searcher_options for o in same if o.searcher == record.searcher], record.searcher_options),
        "creator.": ([o.creator_options for o in same if o.creator == record.creator], record.creator_options),
        "protocol.": ([protocol_settings(other) for other in alike], protocol_settings(record)),
    }
    shown = [
        f"{prefix}{key}={format_option(value)}"
        for prefix, (all_of_them, own) in parts.items()
        for key, value in sorted(own.items())
        if _differs(key, all_of_them)
    ]
    # What was changed in the benchmark is told always: it is not what the leaderboard's heading says.
    shown += [f"benchmark.{key}={format_option(value)}" for key, value in sorted(record.benchmark_overrides.items())]
    shown += [f"precision={record.precision}"] if record.precision != "float32" else []
    name = " + ".join(part for part in (record.strategy, record.searcher, record.creator) if part)
    return f"{name} ({', '.join(shown)})" if shown else name


def _differs(key: str, all_of_them: Sequence[Mapping[str, Any]]) -> bool:
    return len({json.dumps(options[key], sort_keys=True) if key in options else None for options in all_of_them}) > 1
