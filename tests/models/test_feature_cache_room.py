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


def test_a_stage_leaves_its_room() -> None:
    """Tables of the stage before give way at once; they stay where the room is not needed."""
    frozen = Frozen()
    for room, again in ((100, True), (200, False)):
        kept = cache(room * frozen.row)
        images = kept.number(TRAIN)
        epoch_of(kept, "first", frozen, images)
        kept.begin_stage()
        epoch_of(kept, "second", frozen, images)
        assert epoch_of(kept, "second", frozen, images) == 0
        assert (epoch_of(kept, "first", frozen, images) > 0) == again


def test_tables_in_use_stay() -> None:
    """A third that comes while two are used takes nothing from them."""
    frozen, third = Frozen(), Frozen()
    kept = cache(200 * frozen.row)
    images = kept.number(TRAIN)
    for _ in range(3):
        for x in batches(images):
            kept.get(x, "first", frozen)
            kept.get(x, "second", frozen)
            kept.get(x, "third", third)
        before, frozen.seen = frozen.seen, 0
    assert (before, frozen.seen) == (0, 0)


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


def test_a_key_that_is_not_to_be_kept() -> None:
    """It begins no table, gives the same, and uses one that is there."""
    kept, none, frozen = cache(), cache(0), Frozen()
    images, same = kept.number(TRAIN), none.number(TRAIN)
    which = torch.randperm(90)[:11]
    x, y = images.gather(which)[0], same.gather(which)[0]
    assert equal(kept.get(x, "key", frozen, keep=False), none.get(y, "key", frozen))
    assert kept.peak_bytes == 0
    kept.get(all_of(images), "key", frozen)
    frozen.seen = 0
    assert equal(kept.get(x, "key", frozen, keep=False), none.get(y, "key", frozen))
    assert frozen.seen == 2 * CHUNK  # those of the cache without memory


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


def test_longer_begins_with_shorter() -> None:
    """Features cached of a shorter beginning are read for the longer one; those between are not cached."""
    model = Layers()
    model.feature_cache = cache()
    images = model.feature_cache.number(TRAIN)
    for x in batches(images):
        model.output(x, 1)
    assert model.seen == [96, 0, 0]
    for _ in range(2):
        for x in batches(images):
            model.output(x, 3)
    assert model.seen == [0, 96, 96]
    assert model.feature_cache.bytes == 90 * 4 * 64 * (2 + 5)


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


def test_nested_requests_are_not_the_runs() -> None:
    """Requests of a function while chunks are computed make no other table idle."""
    model, frozen = Layers(), Frozen()
    # Room for four chunks of the validation images, and for none of the others.
    model.feature_cache = kept = cache(35 * frozen.row)
    train, valid = kept.number(TRAIN), kept.number(TEST)
    epoch_of(kept, "valid", frozen, valid)
    for epoch in range(2):
        for x in batches(train, seed=epoch):
            model.output(x, 3)
        assert model.seen[0] >= 90
        assert epoch_of(kept, "valid", frozen, valid) <= 4 * CHUNK


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


def test_no_images() -> None:
    """An empty batch gives empty values."""
    for budget in (0, 20_000, 10**6, 10**5):
        kept, frozen = cache(budget), Frozen()
        x, _ = kept.number(TRAIN).gather(torch.arange(0))
        assert [tuple(value.shape) for value in kept.get(x, "key", frozen)] == [(0, 3, 8, 8), (0, 3)]
