"""Backbones that begin with weights of a file, that stay frozen, and that are timm's."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from seu_bench import load_model
from seu_bench.config.common_options import Weights
from seu_bench.config.streams import Scenario
from seu_bench.data import InputShape
from seu_bench.engine.runner import execute
from seu_bench.errors import RequestError
from seu_bench.models import count_parameters
from seu_bench.models.pretrained import load_pretrained
from seu_bench.results.record import Record
from seu_bench.testing import Trial
from seu_bench.testing.trial import check_sizes
from seu_bench_backbones.vision_transformer import vit_tiny


def network() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten())


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


def same(one: nn.Module, two: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))


FORMS: dict[str, Any] = {
    "safetensors": None,
    "plain": lambda tensors: tensors,
    "within": lambda tensors: {"epoch": 3, "state_dict": tensors},
    "several devices": lambda tensors: {"model": {f"module.{name}": value for name, value in tensors.items()}},
    "a whole model": lambda tensors: {
        **{f"backbone.{name}": value for name, value in tensors.items()},
        "heads.0.weight": torch.zeros(2, 2),
    },
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_reads_what_people_save(tmp_path: Path, form: Any) -> None:
    source, target = network(), network()
    path = tmp_path / ("weights.safetensors" if form is None else "weights.pth")
    if form is None:
        save_file(tensors_of(source), path)
    else:
        torch.save(form(tensors_of(source)), path)
    assert not same(source, target)
    load_pretrained(target, Weights.parse(path))
    assert same(source, target)


def test_refuses_an_archive_that_unpacks_to_more(tmp_path: Path) -> None:
    torch.save({"0.weight": torch.zeros(2**20)}, tmp_path / "plain.pth")
    with zipfile.ZipFile(tmp_path / "plain.pth") as plain, zipfile.ZipFile(tmp_path / "bomb.pth", "w") as bomb:
        for name in plain.namelist():
            bomb.writestr(name, plain.read(name), compress_type=zipfile.ZIP_DEFLATED)
    with pytest.raises(RequestError, match="it is compressed, as"):
        load_pretrained(network(), Weights.parse(tmp_path / "bomb.pth"))


class Evil:
    """What would be carried out if the file were unpickled."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return Path.touch, (self.place,)


def test_executes_nothing(tmp_path: Path) -> None:
    torch.save({"0.weight": Evil(tmp_path / "touched")}, tmp_path / "weights.pth")
    with pytest.raises(RequestError, match=r"cannot be read(.|\n)*are not loaded"):
        load_pretrained(network(), Weights.parse(tmp_path / "weights.pth"))
    torch.save(network(), tmp_path / "weights.pth")
    with pytest.raises(RequestError, match="cannot be read"):
        load_pretrained(network(), Weights.parse(tmp_path / "weights.pth"))
    assert not (tmp_path / "touched").exists()


FAULTS: dict[str, tuple[Any, str]] = {
    "missing": ({"0.weight": torch.zeros(3, 1, 3, 3)}, "6 of 7 tensors are missing, the first of which is '0.bias'"),
    "shape": (tensors_of(network()) | {"0.weight": torch.zeros(4, 1, 3, 3)}, r"'0.weight': \(4, 1, 3, 3\), and the"),
    "list": ([torch.zeros(3)], "no named tensors"),
    "empty": ({}, "no named tensors"),
}


@pytest.mark.parametrize(("content", "message"), FAULTS.values(), ids=FAULTS)
def test_what_does_not_fit(tmp_path: Path, content: Any, message: str) -> None:
    torch.save(content, tmp_path / "weights.pth")
    target = network()
    before = tensors_of(target)
    with pytest.raises(RequestError, match=message):
        load_pretrained(target, Weights.parse(tmp_path / "weights.pth"))
    assert all(torch.equal(value, before[name]) for name, value in target.state_dict().items())


def weights_for(folder: Path, backbone: str = "mlp") -> Path:
    """A file of weights that fit a backbone, drawn by another seed than a run's."""
    learner = Trial("naive", {"backbone": backbone}).learner("tiny_three", seed=5)
    file = folder / "weights.pth"
    torch.save(learner.model.backbone.state_dict(), file)
    return file


def finished(strategy: str, folder: Path, **options: Any) -> Record:
    trial = Trial(strategy, options)
    record = execute(trial.registry, trial.resolved("tiny_three", results=folder, device="cpu")).record
    assert record.status == "finished", record.error
    return record


def test_identity_is_the_content(tmp_path: Path) -> None:
    file = weights_for(tmp_path)
    moved = tmp_path / "other.pth"
    moved.write_bytes(file.read_bytes())
    trial = Trial("naive", {"backbone": "mlp", "weights": str(file)})
    spec = trial.resolved("tiny_three").spec
    assert spec.options["weights"] == f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()[:16]}"
    assert Trial("naive", {"backbone": "mlp", "weights": str(moved)}).resolved("tiny_three").spec.run_id == spec.run_id
    assert Trial("naive", {"backbone": "mlp"}).resolved("tiny_three").spec.run_id != spec.run_id


@pytest.mark.parametrize("strategy", ["naive", "ewc", "lwf", "replay", "derpp"])
@pytest.mark.long
def test_frozen_backbone_stays(strategy: str, tmp_path: Path) -> None:
    """Bit by bit, statistics of BatchNorm included; heads learn, and what the run counts is what was said."""
    options = {"backbone": "resnet18", "frozen": True, "width": 0.2}
    trial = Trial(strategy, options)
    learner = trial.learner("tiny_three")
    before = learner.weights()
    for task in range(learner.tasks):
        learner.learn(task)
        if not learner.whole_stream:
            check_sizes(learner, task)
    after = learner.weights()
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed and all(name.startswith("heads.") for name in changed)
    record = finished(strategy, tmp_path, **options)
    said = {(stage.name, stage.task): stage for stage in learner.cost.stages}
    for stage in record.stages:
        known = said[stage.name, stage.task]
        assert stage.image_passes == known.image_passes, stage
        if known.flops is not None and known.flops_min is not None and stage.flops is not None:
            assert known.flops_min <= stage.flops <= known.flops, stage


@pytest.mark.parametrize(
    "strategy", ["hat", "packnet", "cpg", "icarl", "wa", "independent", "rcl", "dgr", "den", "pathnet"]
)
def test_others_refuse_it(strategy: str) -> None:
    scenario: Scenario = "class" if strategy in ("icarl", "wa", "dgr") else "task"
    with pytest.raises(RequestError, match="cannot leave it frozen"):
        Trial(strategy, {"frozen": True}, scenario=scenario).learner("tiny_three").learn(0)


def test_saved_model_needs_no_file(tmp_path: Path) -> None:
    """It has the weights itself; a new run from its record asks for the file."""
    file = weights_for(tmp_path)
    record = finished("naive", tmp_path, backbone="mlp", weights=str(file), frozen=True)
    file.unlink()
    model = load_model(record.run_id, results=tmp_path)
    assert count_parameters(model.network) == record.params_total[-1]
    trial = Trial("naive", dict(record.options))
    with pytest.raises(RequestError, match=r"known by their checksum only(.|\n)*-o weights=PATH"):
        trial.learner("tiny_three")


@pytest.mark.long
def test_networks_of_timm(tmp_path: Path) -> None:
    torch.manual_seed(1)
    published = timm.create_model("resnet10t", pretrained=False, in_chans=1, num_classes=7)
    torch.save(published.state_dict(), tmp_path / "weights.pth")
    options = {"backbone": "timm:resnet10t", "weights": str(tmp_path / "weights.pth"), "frozen": True}
    learner = Trial("naive", options).learner("tiny_three").learn_all()
    images = learner.test_images(0)
    learner.model.eval()
    published.eval()
    with torch.no_grad():
        wanted = published.forward_head(published.forward_features(images), pre_logits=True)
        assert torch.equal(learner.model.backbone(images), wanted)
    assert finished("naive", tmp_path, **options).options["backbone"] == "timm:resnet10t"


def test_transformer_has_the_names_of_timm() -> None:
    """Weights of timm's tiny transformer are those of ours, and both compute the same."""
    theirs = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=0).eval()
    ours, features = vit_tiny(InputShape("image", (3, 224, 224)), 1.0)
    ours.load_state_dict(theirs.state_dict())
    images = torch.randn(2, 3, 224, 224, dtype=torch.float64)
    with torch.no_grad():  # in double precision: sums in another order differ in the last digits alone
        torch.testing.assert_close(ours.double().eval()(images), theirs.double()(images), rtol=1e-10, atol=1e-12)
    assert (features, count_parameters(ours)) == (192, count_parameters(theirs))
