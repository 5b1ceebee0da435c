"""Tuned files that benchmarks of ours name as defaults: unchanged, for what they are named by, applied as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from support.tiny import registry
from support.tuning import tuned_file

import seu_bench_benchmarks
from seu_bench.config.benchmark import BenchmarkFile
from seu_bench.config.run import Request
from seu_bench.config.tuned import TunedFile
from seu_bench.engine.resolve import resolve
from seu_bench.errors import SeuBenchError

OURS = Path(seu_bench_benchmarks.__file__).resolve().parent


def faults(folder: Path) -> Iterator[str]:
    """Faults of the tuned defaults of the benchmarks in a folder."""
    named = set()
    for path in sorted(folder.glob("*.toml")):
        benchmark = BenchmarkFile(path).load()
        for protocol, spec in benchmark.protocols.items():
            for configuration, tuned in spec.tuned.items():
                named.add(tuned)
                if tuned != folder / "tuned" / f"{benchmark.name}-{protocol}-{configuration}.toml":
                    yield f"{tuned} is not named by benchmark, protocol and configuration"
                try:
                    file = TunedFile.read(tuned)
                    own = {key: getattr(file, key) for key in ("strategy", "searcher", "creator")}
                    run = resolve(registry(), Request(benchmark=str(path), protocol=protocol, **own))
                except SeuBenchError as error:
                    yield str(error)
                    continue
                applied = run.options.model_dump(mode="json")
                for part in filter(None, (run.searcher, run.creator)):
                    values = part.options.model_dump(mode="json")
                    applied |= {f"{part.kind}.{key}": value for key, value in values.items()}
                if differ := {key for key, value in file.options.items() if applied.get(key) != value}:
                    yield f"{tuned}: {differ} are not applied"
                if run.tuned != file or file.synthetic or file.limit is not None or file.id != tuned.stem:
                    yield f"{tuned} is no tuning of this configuration on its data"
    yield from (f"{path} is named by no protocol" for path in (folder / "tuned").glob("*") if path not in named)


def test_ours() -> None:
    assert list(faults(OURS)) == []


def test_faults_are_found(tmp_path: Path) -> None:
    """On a made-up benchmark: none at first, then each kind."""
    (tmp_path / "mine.toml").write_text(
        'name = "mine"\n[stream]\nkind = "classes"\ndataset = "digits"\nclasses_per_task = 2\n'
        '[protocols.quick.tuned]\newc = "tuned/mine-quick-ewc.toml"\n',
        encoding="utf-8",
    )
    path = tmp_path / "tuned" / "mine-quick-ewc.toml"
    assert ["the tuned file does not exist" in fault for fault in faults(tmp_path)] == [True]
    place = {"benchmark": "mine", "benchmark_version": 1, "protocol": "quick", "id": path.stem}
    tuned_file(**place).write(path)
    assert list(faults(tmp_path)) == []
    for wrong in ({"limit": 9}, {"synthetic": True}, {"protocol": "paper"}, {"strategy": "naive"}, {"id": "other"}):
        tuned_file(**{**place, **wrong}).write(path)
        assert list(faults(tmp_path)), wrong
    tuned_file(**place).write(path)
    path.write_text(path.read_text(encoding="utf-8").replace("10.0", "11.0"), encoding="utf-8")
    assert ["was changed" in fault for fault in faults(tmp_path)] == [True]
    tuned_file(**place).write(path)
    tuned_file(**place).write(path.with_name("forgotten.toml"))
    assert ["forgotten.toml is named by no protocol" in fault for fault in faults(tmp_path)] == [True]
