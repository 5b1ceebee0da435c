"""Published pages can be made again from their records, and show what each strategy promises."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pandas
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the scripts are no installed package

import seu_bench
from scripts import checkpoint_cost, engines, searchers_table
from seu_bench.engine.checkpoint_manager import SHARE
from seu_bench.plugin.registry import Registry
from seu_bench.results.leaderboard.building import make_leaderboards
from seu_bench.results.record_files import pack_records

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "results" / "published"
BASELINES = PUBLISHED / "baselines"
SEARCHERS = PUBLISHED / "searchers"
BENCHMARKS = ["split_digits", "pmnist"]


SETS = sorted(path.parent.relative_to(PUBLISHED).as_posix() for path in PUBLISHED.rglob("records.jsonl"))


@pytest.mark.parametrize("folder", SETS)
def test_sets_are_complete(tmp_path: Path, folder: str) -> None:
    """Every line can be read, and packing what is packed changes nothing."""
    assert seu_bench.load_records(PUBLISHED / folder).attrs["unreadable"] == []
    shutil.copy(PUBLISHED / folder / "records.jsonl", tmp_path)
    assert pack_records(tmp_path).read_bytes() == (PUBLISHED / folder / "records.jsonl").read_bytes()


@pytest.fixture(scope="module")
def records() -> pandas.DataFrame:
    """A row per published run."""
    return seu_bench.load_records(BASELINES)


def on(records: pandas.DataFrame, benchmark: str, backbone: str) -> pandas.DataFrame:
    """Runs of a benchmark on a network; strategies that take none are on their own."""
    chosen = records["options.backbone"].fillna("alexnet") == backbone
    return records[(records["benchmark"] == benchmark) & chosen]


@pytest.mark.parametrize("folder", ["baselines", "sweep"])
def test_leaderboards_come_from_the_records(tmp_path: Path, folder: str) -> None:
    """The tables that are published are those that the records give, to the letter."""
    shutil.copy(PUBLISHED / folder / "records.jsonl", tmp_path)
    made = {path.name: path.read_text(encoding="utf-8") for path in make_leaderboards(tmp_path).paths}
    for benchmark in BENCHMARKS:
        name = f"{benchmark}-v1-quick.md"
        assert (PUBLISHED / folder / "leaderboards" / name).read_text(encoding="utf-8") == made[name]


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_every_strategy_three_times(records: pandas.DataFrame, benchmark: str) -> None:
    """All that are offered but the latest, on seeds 0, 1 and 2, finished and ranked."""
    runs = records[records["benchmark"] == benchmark]
    assert set(runs["strategy"]) | {"independent", "linear"} == set(Registry().strategies)
    seeds = runs.groupby(["strategy", "options.backbone"], dropna=False)["seed"].agg(sorted)
    assert all(found == [0, 1, 2] for found in seeds)
    assert set(runs["status"]) == {"finished"}
    assert runs["may_be_ranked"].all()


@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_frozen_growth_forgets_exactly_nothing(records: pandas.DataFrame, benchmark: str) -> None:
    """Progressive networks, Learn to Grow and SEU: 0, not nearly 0, in each run."""
    runs = records[(records["benchmark"] == benchmark) & records["strategy"].isin(["pnn", "ltg", "seu"])]
    assert len(runs) == 9
    assert (runs["forgetting"] == 0).all()
    assert (runs["bwt"] == 0).all()


@pytest.mark.parametrize(
    ("benchmark", "backbone"), [("split_digits", "alexnet"), ("pmnist", "alexnet"), ("pmnist", "mlp")]
)
def test_ewc_forgets_less_than_naive(records: pandas.DataFrame, benchmark: str, backbone: str) -> None:
    """On the same network, for each seed."""
    runs = on(records, benchmark, backbone)
    forgetting = runs.pivot_table(index="seed", columns="strategy", values="forgetting")
    assert (forgetting["ewc"] < forgetting["naive"]).all()


def test_joint_is_at_the_top_of_pmnist(records: pandas.DataFrame) -> None:
    """On the network that learns this benchmark the reference has the best mean accuracy of all rows."""
    runs = records[records["benchmark"] == "pmnist"].assign(backbone=records["options.backbone"].fillna("none"))
    assert runs.groupby(["strategy", "backbone"])["acc"].mean().idxmax() == ("joint", "mlp")


def test_joint_is_above_naive(records: pandas.DataFrame) -> None:
    """Wherever both were run on the same network."""
    for benchmark, backbone in (("split_digits", "alexnet"), ("pmnist", "alexnet"), ("pmnist", "mlp")):
        means = on(records, benchmark, backbone).groupby("strategy")["acc"].mean()
        assert means["joint"] > means["naive"]


# --- searchers and creators ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def searches() -> pandas.DataFrame:
    """A row per published run of a searcher and a creator."""
    return seu_bench.load_records(SEARCHERS)


def test_page_comes_from_the_records() -> None:
    """The page of searchers and creators is what the script makes of the records, to the letter."""
    made = "\n".join(searchers_table.document(SEARCHERS)) + "\n"
    assert made == SEARCHERS.with_suffix(".md").read_text(encoding="utf-8")


def test_ranges_that_do_not_overlap_are_no_proof() -> None:
    """Every seed of mdl is above every seed of random: significant where the seeds agree, not where they hardly do."""
    clear, unclear = (0.60, 0.61, 0.62), (0.51, 0.90, 0.60)
    for values, said in ((clear, "1 of 1 differences significant"), (unclear, "0 of 1 differences significant")):
        rows = [("random", seed, 0.50 - seed / 100) for seed in range(3)]
        rows += [("mdl", seed, value) for seed, value in enumerate(values)]
        runs = pandas.DataFrame(
            [{"searcher": name, "creator": "mdl", "seed": seed, "acc": acc} for name, seed, acc in rows]
        )
        text = "\n".join(searchers_table.comparisons(runs, "acc"))
        assert said in text.partition("Creators")[0]
        assert ("`mdl` is above `random` with creator `mdl`" in text) == (values == clear)


def test_reliability_comes_from_what_was_measured() -> None:
    """The page of checkpoints is what the script makes of the measurements, and by default they keep to their share."""
    page = ROOT / "results" / "published" / "reliability.md"
    document = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    assert "\n".join(checkpoint_cost.page(document)) + "\n" == page.read_text(encoding="utf-8")
    runs = document["runs"]
    default = [run for run in runs if run["policy"] == "default"]
    assert len(default) == len(runs) / 2 >= 5
    for run in default:
        assert run["checkpoint_seconds"] <= SHARE * run["seconds"], run["strategy"]


def test_executors_come_from_what_was_measured() -> None:
    page = PUBLISHED / "engines.md"
    document = json.loads(page.with_suffix(".json").read_text(encoding="utf-8"))
    assert engines.page(document) == page.read_text(encoding="utf-8")


def test_every_search_is_complete(searches: pandas.DataFrame) -> None:
    """Finished, ranked, and without any forgetting."""
    assert set(searches["status"]) == {"finished"}
    assert searches["may_be_ranked"].all()
    assert (searches["forgetting"] == 0).all()


def test_frugal_beats_mdl(searches: pandas.DataFrame) -> None:
    """Wherever both creators were run on a seed: a higher mixed score, at no more image passes."""
    place = ["benchmark", "searcher", "seed"]
    wide = searches.pivot_table(index=place, columns="creator", values=["mixed_score", "image_passes"]).dropna(
        subset=[("mixed_score", "mdl"), ("mixed_score", "frugal")]
    )
    assert len(wide) >= 6
    assert (wide["mixed_score"]["frugal"] > wide["mixed_score"]["mdl"]).all()
    assert (wide["image_passes"]["frugal"] <= wide["image_passes"]["mdl"]).all()
