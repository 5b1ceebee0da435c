"""Pixels of tasks are permuted, padded, normalised and repeated as the specification says, one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from support.streams import classes_spec, everything, made, permuted_spec
from support.tiny import all_threads, one_thread, raw_dataset
from torchvision.transforms import Compose, Normalize, ToTensor

setup_module, teardown_module = one_thread, all_threads


@pytest.mark.parametrize("seed", [0, 1])
def test_permutations(seed: int) -> None:
    """Task i, drawn as r, sees the flattened pixels shuffled by RandomState(100 r + i), in all three splits."""
    data = raw_dataset([12, 12], [4, 4])
    spec = permuted_spec(tasks=3, validation=0.25)
    stream = made(spec, data, seed)
    order = np.arange(3)
    np.random.RandomState(seed).shuffle(order)
    shuffle = np.arange(24)
    np.random.RandomState(seed).shuffle(shuffle)
    seen = []
    for position, (task, drawn) in enumerate(zip(stream.tasks, order, strict=True)):
        pixels = np.arange(64)
        np.random.RandomState(100 * int(drawn) + position).shuffle(pixels)
        seen.append(pixels.tolist())
        expected = (data.train.images.reshape(24, 64)[shuffle] / np.float32(255)).astype(np.float32)
        for images, rows in ((task.valid, expected[:6]), (task.train, expected[6:])):
            found = everything(images)[0].reshape(len(rows), 64).numpy()
            for image, original in zip(found, rows, strict=True):
                assert [image[place] for place in range(64)] == [original[pixels[place]] for place in range(64)]
        test = (data.test.images.reshape(8, 64) / np.float32(255)).astype(np.float32)[:, pixels]
        assert np.array_equal(everything(task.test)[0].reshape(8, 64).numpy(), test)
        assert pixels.tolist() != list(range(64))
    assert seen[0] != seen[1] != seen[2]
    assert stream.plan.order == tuple(order.tolist())


@pytest.mark.parametrize(
    ("channels", "mean", "std"), [(1, [0.1307], [0.3081]), (3, [0.49, 0.48, 0.45], [0.2, 0.3, 0.4])]
)
def test_normalisation_equals_torchvisions(channels: int, mean: list[float], std: list[float]) -> None:
    """Pixels are those of torchvision's ToTensor and Normalize, bit by bit."""
    data = raw_dataset([8, 8], [4, 4], channels=channels)
    spec = classes_spec(groups=[[0, 1]], input={"mean": mean, "std": std})
    x = everything(made(spec, data).tasks[0].test)[0]
    transform = Compose([ToTensor(), Normalize(mean, std)])
    for image, raw in zip(x, data.test.images, strict=True):
        picture = Image.fromarray(raw[0] if channels == 1 else np.ascontiguousarray(raw.transpose(1, 2, 0)))
        assert torch.equal(image, transform(picture))
    assert x.dtype == torch.float32


def test_padding_and_grey_to_colour() -> None:
    """Raw zeros are added on every side before normalising, then the grey channel is repeated."""
    data = raw_dataset([8, 8], [4, 4])
    spec = classes_spec(groups=[[0, 1]], input={"mean": [0.25], "std": [0.5], "pad": 2, "channels": 3})
    stream = made(spec, data)
    assert (stream.plan.channels, stream.plan.height, stream.plan.width) == (3, 12, 12)
    x = everything(stream.tasks[0].test)[0]
    padded = np.zeros((8, 12, 12), dtype=np.uint8)
    padded[:, 2:-2, 2:-2] = data.test.images[:, 0]
    expected = (torch.from_numpy(padded).float() / 255 - 0.25) / 0.5
    for channel in range(3):
        assert torch.equal(x[:, channel], expected)
    assert bool((x[:, :, 0] == -0.5).all())


def test_computed_statistics() -> None:
    """Without a mean the training images give it, all of them, per channel."""
    data = raw_dataset([10, 10], [4, 4], channels=3)
    data.train.images[:, 2] = 51
    spec = classes_spec(groups=[[0], [1]], order="fixed", input={})
    stream = made(spec, data)
    x = torch.cat([everything(part)[0] for task in stream.tasks for part in (task.train, task.valid)]).double()
    assert x.shape[0] == 20
    torch.testing.assert_close(x.mean(dim=(0, 2, 3)), torch.zeros(3).double(), atol=1e-6, rtol=0)
    torch.testing.assert_close(x.std(dim=(0, 2, 3), correction=0)[:2], torch.ones(2).double(), atol=1e-6, rtol=0)
    assert bool(torch.isfinite(x).all())
