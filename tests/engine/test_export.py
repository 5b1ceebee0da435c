"""``seu-bench export``: a task's network as ONNX computes what the model computes, and holds nothing else."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from support.commands import SMALL_SEU, Command, RunFolders
from torch import Tensor, nn

import seu_bench
from seu_bench.engine.onnx_export import export_onnx, onnx_bytes
from seu_bench.engine.saved_model import LearnedModel, load_model
from seu_bench.errors import ResultsError
from seu_bench.models.backbone import BackboneModel
from seu_bench.models.sizes import count_parameters
from seu_bench.plugin.registry import Registry
from seu_bench.results.record import Record, TaskInput, read_record, write_record

# Two tasks: each file takes seconds to make.
SMALL = ("--protocol", "smoke", "--limit", 12, "-o", "epochs=1", "-o", "benchmark.stream.classes_per_task=5")
OPTIONS = {
    "seu": SMALL_SEU,
    "naive": ("-o", "backbone=mlp"),
    "packnet": ("-o", "width=0.03"),
    "cpg": ("-o", "width=0.03"),
    "wsn": ("-o", "width=0.03"),
    "supsup": ("-o", "width=0.03"),
    "pathnet": ("-o", "width=0.1"),
    "pnn": ("-o", "width=0.03"),
    "independent": ("-o", "width=0.03"),
    "hat": ("-o", "width=0.03"),
}
#: Images of two pixels each side, as they are.
INPUT = TaskInput(shape=(1, 2, 2), pad=0, background=None, mean=(0.0,), std=(1.0,), permutation_seed=None)
PERMUTED = """
name = "permuted"
default_protocol = "quick"
[stream]
kind = "permutation"
dataset = "digits"
tasks = 2
"""
STRATEGIES = [*OPTIONS, "ewc", "linear", "mntdp", "ltg", "den", "rcl"]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One results folder for the runs of this module."""
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def folders(command: Command, results: Path) -> RunFolders:
    """The folder of a finished run of each strategy."""
    return RunFolders(command, (*SMALL, "--device", "cpu", "--results", results), OPTIONS)


def computed(content: bytes, images: Tensor) -> Any:
    """Logits by onnxruntime, of 8-bit pixels."""
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    assert (given.name, given.type, given.shape[3]) == ("images", "tensor(uint8)", images.shape[1])
    assert given.shape[:3] == ["batch", "height", "width"]
    assert [out.name for out in session.get_outputs()] == ["logits", "probabilities"]
    return session.run(["logits"], {"images": images.permute(0, 2, 3, 1).numpy()})[0]


@pytest.mark.parametrize(
    ("strategy", "task"),
    [
        # An export takes seconds.
        pytest.param(strategy, task, marks=[] if (strategy, task) == ("ltg", 1) else pytest.mark.long)
        for strategy in STRATEGIES
        for task in (0, 1)
    ],
)
def test_same_logits(command: Command, folders: RunFolders, tmp_path: Path, strategy: str, task: int) -> None:
    """For one image and for seven, to 1e-4; the file is whole and about this task only, and only its name is told."""
    path = tmp_path / "deep" / "network.onnx"
    answer = command("export", folders[strategy], "--task", task, "--output", path)
    assert (answer.status, answer.out, answer.err) == (0, f"onnx: {path}\n", "")
    assert [file.name for file in path.parent.iterdir()] == ["network.onnx"]
    content = path.read_bytes()
    model = load_model(folders[strategy])
    for count in (1, 7):
        draws = torch.Generator().manual_seed(count)
        pixels = torch.randint(256, (count, 1, 8, 8), generator=draws, dtype=torch.uint8)
        found = computed(content, pixels)
        assert found.shape == (count, 5)
        assert np.abs(found - model(model.preprocess(pixels, task), task).numpy()).max() < 1e-4
    document = onnx.load_from_string(content)
    onnx.checker.check_model(document, full_check=True)
    told = {entry.key: entry.value for entry in document.metadata_props}
    record = read_record(folders[strategy])
    assert told.pop("images").startswith("uint8, pixels from 0 to 255, [N, H, W, 1]")
    assert json.loads(told.pop("classes")) == list(record.task_class_names[task])
    assert json.loads(told.pop("model_card")) == model.card.model_dump(mode="json")
    assert told == {"run_id": record.run_id, "task": str(task), "task_name": record.task_names[task]}
    # The other head's weights are nowhere in the file, and there is no room for more than the path's own.
    path_of_task = model.network.task_module(task)
    buffers = sum(buffer.numel() for buffer in path_of_task.buffers())
    held = sum(int(np.prod(tensor.dims)) for tensor in document.graph.initializer)
    assert held <= count_parameters(path_of_task) + buffers + 32
    own = {id(parameter) for parameter in path_of_task.parameters()}
    for weight in model.network.parameters():
        if id(weight) not in own and weight.numel() > 3:
            assert weight.numpy().tobytes() not in content
            assert weight.t().contiguous().numpy().tobytes() not in content if weight.dim() == 2 else True
    assert b"site-packages" not in content
    assert b"seu_bench/" not in content


@pytest.mark.parametrize(
    ("strategy", "stream"),
    [
        ("icarl", {"scenario": "class", "groups": [[7, 2], [9, 0]]}),
        pytest.param("bic", {"scenario": "class", "groups": [[7, 2], [9, 0]]}, marks=pytest.mark.long),
        pytest.param("lucir", {"scenario": "class", "groups": [[7, 2], [9, 0]]}, marks=pytest.mark.long),
        pytest.param("icarl", {"scenario": "class", "input.pad": 2, "input.channels": 3}, marks=pytest.mark.long),
        pytest.param("naive", {"input.mean": [0.3], "input.std": [0.5]}, marks=pytest.mark.long),
    ],
)
def test_pixels_in_and_class_names_out(tmp_path: Path, strategy: str, stream: dict[str, Any]) -> None:
    """From the file alone: digits as they are stored, named by the metadata, as well as the record says."""
    options = {"epochs": 2, "backbone": "mlp"} | {f"benchmark.stream.{key}": it for key, it in stream.items()}
    record = seu_bench.run(strategy, "split_digits", protocol="quick", results=tmp_path, device="cpu", options=options)
    right_of_class = {}
    for task in range(2):
        content = export_onnx(record.run_id, task, results=tmp_path).read_bytes()
        (named,) = (it.value for it in onnx.load_from_string(content).metadata_props if it.key == "classes")
        names = np.array(json.loads(named))
        test = Registry().datasets["digits"].factory.load(None).test
        for label in map(int, record.task_class_names[task]):
            answers = names[computed(content, torch.from_numpy(test.images[test.labels == label])).argmax(axis=1)]
            right_of_class[task, str(label)] = int((answers == str(label)).sum()), len(answers)
    if record.scenario == "class":  # of a file of the last task, all answers are those of the end
        assert len(names) == sum(record.task_classes)
    recorded = zip(record.task_class_names, record.task_class_counts, strict=True)
    expected = [dict(zip(names, counts, strict=True)) for names, counts in recorded]
    assert {(task, name): expected[task][name] for task, name in right_of_class} == right_of_class


def test_permuted_pixels(tmp_path: Path) -> None:
    """Each task's file permutes the pixels as its task does: the images are given as they are."""
    benchmark = tmp_path / "permuted.toml"
    benchmark.write_text(PERMUTED)
    options = {"epochs": 3, "backbone": "mlp"}
    record = seu_bench.run("independent", str(benchmark), results=tmp_path, device="cpu", options=options)
    test = Registry().datasets["digits"].factory.load(None).test
    for task, accuracy in enumerate(record.accuracy_matrix[-1]):
        content = export_onnx(record.run_id, task, results=tmp_path).read_bytes()
        answers = computed(content, torch.from_numpy(test.images)).argmax(axis=1)
        assert accuracy is not None and (answers == test.labels).mean() == accuracy > 0.5


def test_refused(command: Command, folders: RunFolders, tmp_path: Path) -> None:
    """A task that was not learned, by name where it has one; a run without weights; no run."""
    folder = tmp_path / "runs" / folders["naive"].name
    shutil.copytree(folders["naive"], folder, ignore=shutil.ignore_patterns("*.onnx"))
    record = read_record(folder)
    write_record(tmp_path, record.model_copy(update={"accuracy_matrix": ((0.5, None), (None, None))}))
    answer = command("export", folder, "--task", 1)
    assert (answer.status, answer.out) == (2, "")
    assert f"has not learned task 1 ({record.task_names[1]!r})" in answer.err
    assert f"the tasks that it learned: 0 ({record.task_names[0]!r})" in answer.err
    assert "has not learned task 7\n" in command("export", folder, "--task", 7).err
    assert command("export", folder, "--task", -1).status == 2
    assert command("export", folder).status == 2
    write_record(tmp_path, record.model_copy(update={"weights_sha256": None}))
    assert "saved no weights" in command("export", folder, "--task", 0).err
    assert command("export", "nobody", "--task", 0, "--results", tmp_path).status == 2
    assert not list(folder.glob("*.onnx"))


class Strange(nn.Module):
    """Does what no exporter can follow."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.zeros(3) if float(images.sum()) > 0 else images.flatten(1)


class Fixed(nn.Module):
    """Makes a number of the length of its batch, which a graph would then be for."""

    def forward(self, images: Tensor) -> Tensor:
        return images.flatten(1) + torch.arange(len(images)).unsqueeze(1)


@pytest.mark.parametrize(
    ("network", "told"),
    [
        (Strange, "task 0 of run x-1 cannot be written as ONNX: "),
        (Fixed, "the network fixes the batch of its input"),  # which the exporter writes without a word
    ],
)
def test_model_that_cannot_be_exported(network: type[nn.Module], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is told in one line, and nothing else is; loggers are as they were."""
    record = Record.model_construct(
        run_id="x-1", task_names=("only",), input_shape=(1, 2, 2), task_inputs=(INPUT,), accuracy_matrix=((0.5,),)
    )
    with pytest.raises(ResultsError, match=told) as refused:
        onnx_bytes(LearnedModel(BackboneModel(network(), 4, (2,)), record), 0)
    assert "\n" not in refused.value.what
    assert logging.root.manager.disable == 0
    assert capsys.readouterr() == ("", "")
