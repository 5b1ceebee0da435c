"""The model of a run on disk: written, and built anew from record and weights."""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from support import tiny
from support.commands import SMALL_SEU, Command, RunFolders, folder_of_run
from torch import nn

import seu_bench
from seu_bench.data.streams import build_stream
from seu_bench.engine.model_card import ModelCard, learned_tasks
from seu_bench.engine.resolve import resolve
from seu_bench.engine.saved_model import KEY, LearnedModel, load_model, model_bytes, parse_weights
from seu_bench.engine.verification import count_by_class, request_of
from seu_bench.errors import PluginError, RequestError, ResultsError
from seu_bench.models.backbone import BackboneModel
from seu_bench.models.multihead import MultiHeadModel
from seu_bench.results.record import Record, read_record, write_record
from seu_bench.results.record_files import MODEL_NAME


@pytest.fixture
def copy(folders: RunFolders, tmp_path: Path) -> Path:
    """The naive run in a folder of its own, to be damaged."""
    return Path(shutil.copytree(folders["naive"], tmp_path / "results" / "runs" / folders["naive"].name))


def changed(folder: Path, **fields: Any) -> None:
    """Change a record; its name stays."""
    record = read_record(folder)
    write_record(folder.parent.parent, record.model_copy(update=fields))


def resealed(folder: Path, seal: dict[str, Any]) -> None:
    """Give a file other metadata, and the record its SHA-256."""
    from safetensors.torch import load, save

    content = (folder / MODEL_NAME).read_bytes()
    written = save(load(content), {KEY: json.dumps(metadata(content) | seal)})
    (folder / MODEL_NAME).write_bytes(written)
    changed(folder, weights_sha256=hashlib.sha256(written).hexdigest())


def metadata(content: bytes) -> dict[str, Any]:
    """The metadata of a file, read by hand."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert list(header["__metadata__"]) == [KEY]
    document: dict[str, Any] = json.loads(header["__metadata__"][KEY])
    return document


#: Two of three tasks are learned.
MATRIX = ((0.5, None, None), (0.5, 0.75, None))
RECORD = Record.model_construct(run_id="x-1", strategy="x", task_names=("a", "b", "c"), accuracy_matrix=MATRIX)


def test_finished_run_keeps_its_model(folders: RunFolders) -> None:
    """The record has the SHA-256 of the file, and the file has what the record says of the model."""
    for folder in (folders["seu"], folders["naive"]):
        record = read_record(folder)
        content = (folder / MODEL_NAME).read_bytes()
        assert record.weights_sha256 == hashlib.sha256(content).hexdigest()
        seal = metadata(content)
        assert (seal["format"], seal["schema_version"], seal["run_id"]) == ("seu-bench model", 1, record.run_id)
        document = json.loads((folder / "record.json").read_text())
        for name in ("accuracy_matrix", "params_total", "params_active", "macs", "genotypes", "paths", "choices"):
            assert seal["record"][name] == document[name], name
        assert ModelCard.model_validate(seal["card"]) == ModelCard.of(record) == load_model(folder).card
    assert metadata((folders["naive"] / MODEL_NAME).read_bytes())["architecture"] == {}


def test_loaded_model_answers(folders: RunFolders) -> None:
    """It knows what it is, gives what the run measured, and cannot be trained by accident."""
    record = read_record(folders["seu"])
    model = seu_bench.load_model(record.run_id[:-3], folders["seu"].parents[1])
    assert isinstance(model, nn.Module)
    assert (model.run_id, model.task_names, model.classes_per_task) == (
        record.run_id,
        record.task_names,
        record.task_classes,
    )
    assert (model.input_shape, model.genotypes, model.paths) == (record.input_shape, record.genotypes, record.paths)
    assert model.learned == (0, 1, 2, 3, 4)
    assert not any(module.training for module in model.modules())
    assert not any(parameter.requires_grad for parameter in model.parameters())
    run = resolve(tiny.registry(), request_of(record))
    made = build_stream(run.spec.benchmark, run.load, run.limits, run.spec.seed)
    for task in model.learned:
        images = made.tasks[task].test
        counts = count_by_class(model, images, task, run.spec.protocol.eval_batch_size, made.plan.tasks[task].labels)
        assert sum(right for right, _ in counts) / len(images) == record.accuracy_matrix[-1][task]
        assert model(images.gather(torch.arange(3))[0], task).shape == (3, record.task_classes[task])


def test_learned_tasks() -> None:
    """Those of the last row in which anything was measured."""
    assert learned_tasks(RECORD) == (0, 1)
    assert learned_tasks(RECORD.model_copy(update={"accuracy_matrix": ()})) == ()
    only_last = ((None, None), (0.5, 0.25), (None, None))
    assert learned_tasks(RECORD.model_copy(update={"accuracy_matrix": only_last})) == (0, 1)
    model = LearnedModel(BackboneModel(nn.Flatten(), 4, (2, 2, 2)), RECORD)
    assert model(torch.zeros(3, 1, 2, 2), 1).shape == (3, 2)
    with pytest.raises(RequestError, match=r"has not learned task 2 \('c'\)"):
        model(torch.zeros(3, 1, 2, 2), 2)


def test_odd_tensors() -> None:
    """Channels innermost, views, shared, empty, other types, not finite: all come back as they were."""

    class Odd(MultiHeadModel):
        def __init__(self) -> None:
            super().__init__((2,))
            self.conv = nn.Conv2d(4, 4, 3).to(memory_format=torch.channels_last)
            self.same = self.conv
            both = torch.arange(12.0).view(3, 4)
            self.register_buffer("both", both)
            self.register_buffer("turned", both.t())
            self.register_buffer("part", both[:, 1:3])
            self.register_buffer("empty", torch.zeros(0, 3))
            self.register_buffer("none", torch.zeros(0, 3))
            self.register_buffer("count", torch.tensor(7))
            self.register_buffer("short", torch.tensor([float("nan"), float("-inf"), -0.0]).half())

    model = Odd()
    assert not model.conv.weight.is_contiguous()
    seal, tensors = parse_weights(model_bytes(model, RECORD), Path("x"))
    assert seal.shared == {"same.weight": "conv.weight", "same.bias": "conv.bias"}
    wanted = model.state_dict()
    assert tensors.keys() == wanted.keys()
    for name, tensor in wanted.items():
        found = tensors[name]
        assert (found.dtype, found.shape) == (tensor.dtype, tensor.shape)
        as_bytes = tensor.contiguous().view(-1).view(torch.uint8) if tensor.numel() else tensor
        assert torch.equal(found.view(-1).view(torch.uint8) if found.numel() else found, as_bytes), name


def test_architecture_that_is_no_plain_value() -> None:
    """A plugin's model is told so."""

    class Bad(BackboneModel):
        def architecture(self) -> dict[str, Any]:
            return {"sizes": {1, 2}}

    with pytest.raises(PluginError, match="cannot be saved") as refused:
        model_bytes(Bad(nn.Flatten(), 4, (2,)), RECORD)
    assert refused.value.where == "Bad.architecture"


def test_file_without_card(copy: Path) -> None:
    """As earlier versions wrote it: the record says what it says."""
    resealed(copy, {"card": None})
    assert load_model(copy).card.run_id == read_record(copy).run_id


def refused(folder: Path) -> ResultsError:
    """How the model of a folder is refused: the message names the file and what to do."""
    with pytest.raises(ResultsError) as found:
        load_model(folder)
    assert found.value.where == str(folder / MODEL_NAME)
    assert found.value.remedy
    return found.value


def test_no_weights_kept(copy: Path) -> None:
    """Neither by the record nor in the folder."""
    changed(copy, weights_sha256=None)
    assert "saved no weights" in refused(copy).what
    changed(copy, weights_sha256=None, status="interrupted")
    assert "saved no weights: it is interrupted" in refused(copy).what


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 8,
        b"\xff" * 64,
        b"PK\x03\x04 a checkpoint of torch",
        (2).to_bytes(8, "little") + b"{}",
        (9).to_bytes(8, "little") + b'{"a": []}',
        (14).to_bytes(8, "little") + b'{"__metadata__',
        (32).to_bytes(8, "little") + b'{"__metadata__":{"seu_bench":""}}',
        (35).to_bytes(8, "little") + b'{"__metadata__":{"seu_bench":"[]"}}',
    ],
)
def test_files_that_are_none(copy: Path, content: bytes) -> None:
    """They are refused as damaged, though the record names them."""
    (copy / MODEL_NAME).write_bytes(content)
    changed(copy, weights_sha256=hashlib.sha256(content).hexdigest())
    assert "the weights cannot be read" in refused(copy).what


def test_pickle_is_not_executed(copy: Path) -> None:
    """A file that would run code if it were unpickled is only data here."""
    mark = copy / "executed"

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return (mark.touch, ())

    content = pickle.dumps(Bomb())
    pickle.loads(content)
    assert mark.exists()
    mark.unlink()
    (copy / MODEL_NAME).write_bytes(content)
    changed(copy, weights_sha256=hashlib.sha256(content).hexdigest())
    refused(copy)
    assert not mark.exists()


@pytest.mark.parametrize(
    ("seal", "told"),
    [
        ({"run_id": "another-run"}, "those of run another-run"),
        ({"run_id": "../../up"}, "cannot be read"),
        ({"format": "x"}, "format"),
        ({"schema_version": 99}, "schema_version"),
        ({"architecture": {"columns": 2}}, "does not grow"),
        ({"architecture": []}, "cannot be read"),
        ({"shared": {"a": "nowhere"}}, "cannot be read"),
        ({"shared": {"more": "heads.0.bias"}}, "more is float32[2], not in the model"),
    ],
)
def test_metadata_that_does_not_fit(copy: Path, seal: dict[str, Any], told: str) -> None:
    """It is told what."""
    resealed(copy, seal)
    assert told in refused(copy).what


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"strategy": "gone"}, "no strategy is called 'gone'"),
        ({"options": {"colour": "red"}}, "'colour' is not an option"),
        ({"options": {"backbone": "gone"}}, "no backbone is called 'gone'"),
        ({"options": {"width": 0.5}}, r"float32\["),
        ({"task_classes": (2, 2, 2, 2, 3)}, "heads.4.bias is float32[2], not float32[3]"),
        ({"task_classes": (2, 2)}, "differ in length"),
        ({"task_classes": (), "task_names": (), "task_images": (), "task_order": ()}, "does not say what images"),
        ({"input_shape": None}, "does not say what images"),
        ({"input_shape": (1, 2, 2)}, "cannot be built"),
        ({"protocol_settings": {"model": {"width": "wide"}}}, "cannot be built"),
    ],
)
def test_record_that_does_not_fit(copy: Path, fields: dict[str, Any], told: str) -> None:
    """A record that is changed, or whose plugin is not installed any more."""
    if set(fields) == {"options"}:
        fields = {"options": read_record(copy).options | fields["options"]}
    changed(copy, **fields)
    assert told.replace("\\", "") in refused(copy).what


@pytest.mark.long
def test_equal_runs_leave_equal_bytes(command: Command, folders: RunFolders, tmp_path: Path) -> None:
    """The same run in another folder: the same file, bit by bit."""
    small = ("--protocol", "smoke", "--limit", 12, "-o", "epochs=1", "--device", "cpu", *SMALL_SEU)
    again = folder_of_run(command, "--strategy", "seu", *small, "--results", tmp_path)
    assert again.name == folders["seu"].name
    assert (again / MODEL_NAME).read_bytes() == (folders["seu"] / MODEL_NAME).read_bytes()
