"""Tables of a feature cache make room for others, build on each other, and bear other modes of autograd."""

from __future__ import annotations

import pytest
import torch
from support.features import CHUNK, TEST, TRAIN, Frozen, all_of, batches, cache, epoch_of, equal
from support.tiny import all_threads, one_thread
from torch import Tensor, nn

from seu_bench.models.multihead import MultiHeadModel

setup_module, teardown_module = one_thread, all_threads


def test_idle_tables_make_room() -> None:
    """A table that was not used for longer than all images take to go by gives way to a new one."""
    frozen = Frozen()
    kept = cache(100 * frozen.row)
    images = kept.number(TRAIN)
    epoch_of(kept, "first", frozen, images)
    # Not idle yet: the second gets the little that is left.
    assert epoch_of(kept, "second", frozen, images) > 80
    # By now the first is; and the second gets all the room.
    for _ in range(2):
        epoch_of(kept, "second", frozen, images)
        assert kept.bytes <= 100 * frozen.row
    kept.begin_stage()
    epoch_of(kept, "second", frozen, images)
    assert epoch_of(kept, "second", frozen, images) == 0
    assert kept.bytes == 90 * frozen.row
    assert epoch_of(kept, "first", frozen, images) > 80


@pytest.mark.parametrize("keys", [1, 2, 4])
def test_validation_stays_whatever_training_asks(keys: int) -> None:
    """Used once in each epoch, however many functions are asked of each training batch in between."""
    frozen, other = Frozen(), Frozen()
    # Room for all of the training tables and most of the validation images.
    kept = cache((90 * keys + 35) * frozen.row)
    train, valid = kept.number(TRAIN), kept.number(TEST)
    computed = []
    for epoch in range(4):
        for x in batches(train, seed=epoch):
            for key in range(keys):
                kept.get(x, key, other)
        computed.append(epoch_of(kept, "valid", frozen, valid))
    # Four images have no place; those of a batch are filled up to a chunk.
    assert max(computed[1:]) <= 4 * CHUNK, computed


# --- functions that begin with others -------------------------------------------------------------------------------


class Layers(MultiHeadModel):
    """Frozen layers in a row; what comes out of the first few is asked for."""

    has_frozen_layers = True

    def __init__(self) -> None:
        super().__init__((2,))
        self.layers = nn.ModuleList([Frozen(2), Frozen(3, inputs=2), Frozen(5, inputs=3)])

    def output(self, x: Tensor, depth: int, *, keep: bool = True) -> Tensor:
        def compute(x: Tensor) -> tuple[Tensor, ...]:
            before = self.output(x, depth - 1, keep=False) if depth > 1 else x
            y: Tensor = self.layers[depth - 1](before)[0]
            return (y,)

        return self.cached_features(x, ("depth", depth), compute, keep=keep)[0]

    @property
    def seen(self) -> list[int]:
        """Images that each layer saw since this was asked last."""
        counts = [int(layer.seen) for layer in self.layers]  # type: ignore[arg-type]
        for layer in self.layers:
            layer.seen = 0  # type: ignore[assignment]
        return counts


def test_nested_gives_the_same() -> None:
    """Any shorter beginnings may be cached, and any part of them."""
    model, plain = Layers(), Layers()
    for budget in (0, 10_000, 60_000, 200_000, 10**7):
        model.feature_cache, plain.feature_cache = cache(budget), cache(0)
        images, same = model.feature_cache.number(TRAIN), plain.feature_cache.number(TRAIN)
        for epoch, depth in enumerate((2, 3, 1, 3, 2)):
            for x, y in zip(batches(images, 13, epoch), batches(same, 13, epoch), strict=True):
                assert equal([model.output(x, depth)], [plain.output(y, depth)])
        assert model.feature_cache.peak_bytes <= budget
    model.feature_cache = plain.feature_cache = None
    assert torch.equal(model.output(all_of(TEST), 3), plain.output(all_of(TEST), 3))


# --- other ways to compute ------------------------------------------------------------------------------------------


def test_inference_mode() -> None:
    """Creators and searchers may look at images without autograd altogether, and go on training afterwards."""
    for budget in (0, 20_000, 10**6):
        kept, frozen = cache(budget), Frozen()
        images = kept.number(TRAIN)
        before, _ = images.gather(torch.arange(11))
        with torch.inference_mode():
            within, _ = images.gather(torch.arange(11))
            values = [kept.get(x, "key", frozen) for x in (before, within)]
        after = kept.get(images.gather(torch.arange(30))[0], "key", frozen)
        for value in values:
            assert torch.allclose(value[0], after[0][:11], atol=1e-6)
        weight = torch.ones(after[1].shape[1], requires_grad=True)
        (after[1] @ weight).sum().backward()
        assert weight.grad is not None
