"""Grid of a sweep: every strategy, component, benchmark and option value that it names, as requests."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from seu_bench.config.options import did_you_mean
from seu_bench.config.run import ExecutionFields, Request, ResultFields
from seu_bench.errors import OptionError
from seu_bench.sweeps.spec import SweepSpec

if TYPE_CHECKING:
    from seu_bench.plugin.registry import Registry
    from seu_bench.training.interfaces import StrategyFactory

#: Components, by their names in requests.
_KINDS = ("searcher", "creator")


def expand_grid(registry: Registry, spec: SweepSpec, notes: list[str]) -> Iterator[Request]:
    """Expand every configuration into a request, and exclude from each what its strategy does not take.

    What none takes is refused: mostly slips.
    """
    shared = spec.model_dump(include={*ResultFields.model_fields, *ExecutionFields.model_fields, "protocol"})
    shared["seed"] = spec.seeds[0]
    wanted = [*[kind for kind in _KINDS if getattr(spec, kind)], *spec.axes]
    taken_by_any: set[str] = set()
    known: set[str] = set()
    for strategy in dict.fromkeys([*spec.strategy, *(_references(registry) if spec.references else ())]):
        taken: set[str] = set()
        for benchmark, names in itertools.product(dict.fromkeys(spec.benchmark), _components(registry, spec, strategy)):
            options = _options_of(registry, strategy, names)
            fitting = {
                key: values for key, values in spec.axes.items() if key in options or key.startswith("benchmark.")
            }
            known |= options
            taken |= {*fitting, *[kind for kind, name in names.items() if name]}
            for values in itertools.product(*fitting.values()):
                given = dict(zip(fitting, values, strict=True))
                yield Request(strategy=strategy, benchmark=benchmark, options=given, **names, **shared)
        if excluded := [name for name in wanted if name not in taken]:
            notes.append(f"{strategy} takes no {', no '.join(excluded)}: its jobs are planned without")
        taken_by_any |= taken
    unused = [name for name in wanted if name not in taken_by_any]
    if unused:
        raise OptionError(
            "; ".join(f"no strategy of the sweep takes {name!r}{did_you_mean(name, known)}" for name in unused),
            where="the sweep's options",
            remedy="seu-bench list strategies, searchers or creators shows the options of each",
        )


def _references(registry: Registry) -> list[str]:
    """Strategies that are references, whatever their components."""
    factories = {name: entry.factory for name, entry in registry.strategies.items()}
    return [name for name, it in factories.items() if getattr(it, "reference", None) and not _control_of(it)]


def _control_of(factory: StrategyFactory) -> dict[str, str]:
    """Components with which alone a strategy is a reference; empty where it has no such control."""
    return dict(getattr(factory, "reference_components", {}))


def _components(registry: Registry, spec: SweepSpec, strategy: str) -> list[dict[str, str | None]]:
    """Searcher and creator of each configuration of a strategy, ``None`` where it is the default or takes none."""
    factory = registry.strategies.find(strategy).factory
    chosen = [getattr(spec, kind) or (None,) if kind in factory.components else (None,) for kind in _KINDS]
    found: list[dict[str, str | None]] = [
        dict(zip(_KINDS, pair, strict=True)) for pair in itertools.product(*map(dict.fromkeys, chosen))
    ]
    control: dict[str, str | None] = {kind: _control_of(factory).get(kind) for kind in _KINDS}
    return [*found, control] if spec.references and any(control.values()) and control not in found else found


def _options_of(registry: Registry, strategy: str, components: Mapping[str, str | None]) -> set[str]:
    """Keys of the options of a strategy and its components."""
    factory = registry.strategies.find(strategy).factory
    keys = set(factory.options.model_fields)
    for kind, default in factory.components.items():
        table = registry.searchers if kind == "searcher" else registry.creators
        chosen: Any = table.find(components.get(kind) or default).factory
        keys |= {f"{kind}.{key}" for key in chosen.options.model_fields}
    return keys
