"""Tuned files of runs: those that were asked for, and those that protocols name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seu_bench.config.benchmark import BenchmarkSpec
from seu_bench.config.run import Request
from seu_bench.config.tuned import Place, TunedFile, tuned_path
from seu_bench.errors import SpecError


class TunedFiles:
    """Tuned files that were asked for by path, by id (in the results folder) or by folder, each read once.

    Raises:
        SpecError: a file is missing, or was changed after it was written.
    """

    def __init__(self, results: Path, names: Sequence[str]) -> None:
        paths = [tuned_path(results, name) for name in names]
        self._named = [path for path in paths if not path.is_dir()]
        found = [*self._named, *(file for path in paths if path.is_dir() for file in sorted(path.glob("*.toml")))]
        self.files = {path: TunedFile.read(path) for path in found}
        self._used: set[Path] = set()

    def path_for(self, place: Place) -> Path | None:
        """The file that was tuned for a place; ``None``: there is none. A SpecError names several."""
        match = [path for path, file in self.files.items() if file.place == place]
        if len(match) > 1:
            what, where = f"{len(match)} tuned files are for {_describe(place)}", ", ".join(map(str, match))
            raise SpecError(what, where=where, remedy="name one of them")
        self._used |= set(match)
        return match[0] if match else None

    def refuse_unused(self) -> None:
        """Refuse a file that was named and fits no run, and folders of which no file does."""
        unused = [path for path in self._named or self.files if path not in self._used]
        if unused and (self._named or not self._used):
            places = "; ".join(f"{path.name}: {_describe(self.files[path].place)}" for path in unused[:5])
            raise SpecError(
                f"no run is what a tuned file was tuned for: {places}",
                where=str(unused[0]),
                remedy="tune the configuration that is run with seu-bench tune, or leave --tuned out",
            )


def find_tuned(
    request: Request, benchmark: BenchmarkSpec, place: Place, configuration: str
) -> tuple[TunedFile | None, bool]:
    """Find the tuned file of a run, if it asks for one or its protocol has one, and whether it is the protocol's.

    A SpecError: it is missing, was changed, or was tuned for something else than ``place``.
    """
    default = benchmark.protocols[place[2]].tuned.get(configuration)
    is_default = request.tuned is None
    name = str(default) if is_default and default is not None else request.tuned
    if name is None:
        return None, is_default
    files = TunedFiles(request.results, [name])
    if (path := files.path_for(place)) is not None:
        return files.files[path], is_default
    if is_default and all(it.place[-1] != place[-1] for it in files.files.values()):
        return None, is_default  # the scenario was changed, and nothing is tuned for this one
    files.refuse_unused()
    raise SpecError("the folder holds no tuned file", where=f"--tuned {name}", remedy="make one with seu-bench tune")


def _describe(place: Place) -> str:
    benchmark, version, protocol, *names, scenario = place
    told = f"{' + '.join(filter(None, names))} on {benchmark} version {version}, protocol {protocol}"
    return told if scenario == "task" else f"{told}, scenario {scenario}"
