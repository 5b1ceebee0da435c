"""What frozen layers give is computed once for each image while there is room, and is the same whatever there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiny import CPU, all_threads, class_stream, one_thread
from torch import Tensor, nn
from torch.nn import functional

from seu_bench.data.avalanche import TaskDataset, task_images
from seu_bench.data.images import TaskImages, sample_ids_of, tag_batch
from seu_bench.models.feature_cache import FeatureCache
from seu_bench.models.feature_store import Tier
from seu_bench.models.multihead import MultiHeadModel

setup_module, teardown_module = one_thread, all_threads

CHUNK = 8
STREAM = class_stream([[0, 1, 2]], images=40)
TRAIN, TEST = STREAM.tasks[0].train, STREAM.tasks[0].test


class Frozen(nn.Module):
    """A frozen convolution with BatchNorm, which counts the images that it sees."""

    def __init__(self, channels: int = 3, *, innermost: bool = True, inputs: int = 1) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(channels)
            self.convolution = nn.Conv2d(inputs, channels, 3, padding=1)
            self.norm = nn.BatchNorm2d(channels)
            nn.init.normal_(self.norm.running_mean)
        self.innermost = innermost
        self.seen = 0
        self.sizes: set[int] = set()
        self.requires_grad_(False).eval()

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """Maps and numbers: ``[N, C, H, W]`` and ``[N, C]``."""
        self.seen += len(x)
        self.sizes.add(len(x))
        if self.innermost:
            x = x.expand(-1, max(2, x.shape[1]), -1, -1)[:, : x.shape[1]].contiguous(memory_format=torch.channels_last)
        y = functional.relu(self.norm(self.convolution(x)))
        return y, y.mean(dim=(2, 3))

    @property
    def row(self) -> int:
        """Bytes that it gives for an image of 8x8 pixels."""
        return 4 * self.convolution.out_channels * 65


def cache(budget: int = 10**9, *more: int, chunk: int = CHUNK, dtype: torch.dtype | None = None) -> FeatureCache:
    return FeatureCache([Tier(CPU, limit) for limit in (budget, *more)], chunk, dtype)


def all_of(images: TaskImages) -> Tensor:
    return images.gather(torch.arange(len(images)))[0]


def batches(images: TaskImages, size: int = CHUNK, seed: int = 0) -> Iterator[Tensor]:
    """An epoch."""
    torch.manual_seed(seed)
    for x, _ in images.batches(size, shuffle=True):
        yield x


def positions(count: int, *wanted: int) -> Tensor:
    """Some positions, with repetitions, or those wanted."""
    return torch.tensor(wanted) if wanted else torch.randint(count, (CHUNK,))


def equal(one: Sequence[Tensor], other: Sequence[Tensor]) -> bool:
    """Bit by bit, and of one layout: what is computed of them then is the same too."""
    return len(one) == len(other) and all(
        torch.equal(a, b) and a.stride() == b.stride() for a, b in zip(one, other, strict=True)
    )


def test_streams_are_as_meant() -> None:
    """Ninety images: the last batch of eight is short."""
    assert (len(TRAIN), len(TEST), TRAIN.sample_ids, TEST.sample_ids) == (90, 36, None, None)


# --- marks ----------------------------------------------------------------------------------------------------------


def numbers_of(x: Tensor) -> list[int] | None:
    ids = sample_ids_of(x)
    return None if ids is None else ids.numbers.tolist()


def test_marks_of_batches() -> None:
    """Batches say which images of the split they are, however they were gathered."""
    images = cache().number(TRAIN)
    assert numbers_of(images.gather(torch.tensor([5, 0, 5]))[0]) == [5, 0, 5]
    seen: list[int] = []
    for x in batches(images):
        assert torch.equal(x, all_of(TRAIN)[sample_ids_of(x).numbers])  # type: ignore[union-attr]
        seen += numbers_of(x) or []
    assert sorted(seen) == list(range(90)) != seen
    in_order = [numbers_of(x) for x, _ in images.batches(50, shuffle=False)]
    assert in_order == [list(range(50)), list(range(50, 90))]


def test_marks_of_parts() -> None:
    """Parts, halves and subsets, and those of them, have the numbers of the whole."""
    images = cache().number(TRAIN)
    first, second = images.halves()
    cases: dict[str, tuple[TaskImages, list[int]]] = {
        "part": (images.part(7, 10), [7, 8, 9]),
        "second half": (second, list(range(45, 90))),
        "part of a half": (second.part(40, 45), list(range(85, 90))),
        "subset": (images.subset(torch.tensor([9, 2, 9])), [9, 2, 9]),
        "subset of a half": (first.subset(torch.tensor([44, 3])).subset(torch.tensor([1])), [3]),
        "the same device": (images.part(0, 2).to(CPU), [0, 1]),
        "mask": (images.subset(torch.arange(90) < 3), [0, 1, 2]),
    }
    for name, (some, expected) in cases.items():
        x = all_of(some)
        assert numbers_of(x) == expected, name
        assert torch.equal(x, all_of(TRAIN)[expected]), name


def test_marks_survive_a_data_set() -> None:
    """Avalanche's data sets and their subsets hand on marks."""
    images = cache().number(TRAIN)
    dataset = TaskDataset.of(images).subset([4, 7, 1])
    assert numbers_of(all_of(task_images(dataset, 0, CPU))) == [4, 7, 1]


CHANGES: dict[str, Callable[[Tensor], Tensor]] = {
    "added in place": lambda x: x.add_(1),
    "a part set": lambda x: _set(x),
    "in place by a view": lambda x: (x.view(-1).mul_(2), x)[1],
    "in place, detached": lambda x: (x.detach().zero_(), x)[1],
    "copied": lambda x: x.clone(),
    "detached": lambda x: x.detach(),
    "sum": lambda x: x + 0.1,
    "a view": lambda x: x.view_as(x),
    "first": lambda x: x[:1],
    "flipped": lambda x: x.flip(3),
    "other numbers": lambda x: x.double(),
    "parameter": lambda x: nn.Parameter(x),
    "concatenated": lambda x: torch.cat([x]),
}


def _set(x: Tensor) -> Tensor:
    x[0, 0, 0, 0] = 3
    return x


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_loses_the_mark(change: Callable[[Tensor], Tensor]) -> None:
    """Whatever is done with a batch, the result is not taken for the images it came from."""
    images = cache().number(TRAIN)
    x, _ = images.gather(torch.arange(4))
    assert sample_ids_of(x) is not None
    assert sample_ids_of(change(x)) is None


def test_no_marks() -> None:
    """Images that nobody numbered have none; numbering leaves the images it is given as they are."""
    numbered = cache().number(TRAIN)
    assert TRAIN.sample_ids is None and numbered.sample_ids is not None
    for images in (TRAIN, TEST, TRAIN.part(0, 3)):
        assert sample_ids_of(all_of(images)) is None


# --- what is computed -----------------------------------------------------------------------------------------------


def test_each_image_once() -> None:
    """While all fits: over epochs, batch sizes and parts each image is computed once, always in chunks; those of the
    last chunk that is short are computed with images before them."""
    kept, frozen = cache(), Frozen()
    images = kept.number(TRAIN)
    expected = frozen(all_of(TRAIN))
    frozen.seen, frozen.sizes = 0, set()
    for epoch in range(3):
        for size in (CHUNK, 5, 64):
            for x in batches(images, size, epoch):
                numbers = sample_ids_of(x).numbers  # type: ignore[union-attr]
                for got, value in zip(kept.get(x, "key", frozen), expected, strict=True):
                    assert torch.allclose(got, value[numbers], atol=1e-6)
    for x in batches(images.halves()[1]):
        kept.get(x, "key", frozen)
    assert frozen.seen == 12 * CHUNK
    assert frozen.sizes == {CHUNK}
    assert kept.bytes == kept.peak_bytes == 90 * frozen.row


def test_only_what_is_asked_for() -> None:
    """The first batch computes the chunks of its images and the first, from which forms are known; no others."""
    kept, frozen = cache(), Frozen()
    images = kept.number(TRAIN)
    kept.get(images.gather(torch.tensor([24, 31, 30, 88]))[0], "key", frozen)
    assert frozen.seen == 3 * CHUNK
    kept.get(images.gather(torch.tensor([25, 0, 89]))[0], "key", frozen)
    assert frozen.seen == 3 * CHUNK
    kept.get(images.gather(torch.tensor([79]))[0], "key", frozen)
    assert frozen.seen == 4 * CHUNK


def test_nothing_is_kept_without_a_budget() -> None:
    """Then everything is computed as often as it is asked for, and the bits are the same."""
    none, all_kept, frozen = cache(0), cache(), Frozen()
    for kept in (none, all_kept):
        frozen.seen = 0
        images = kept.number(TRAIN)
        for epoch in range(2):
            for x in batches(images, seed=epoch):
                kept.get(x, "key", frozen)
        assert (frozen.seen, kept.peak_bytes) == ((2 * 12 * CHUNK, 0) if kept is none else (12 * CHUNK, 90 * 780))
    assert equal(*_answers([none, all_kept], frozen, torch.randperm(90)))


def _answers(caches: Sequence[FeatureCache], compute: Callable[[Tensor], tuple[Tensor, ...]], which: Tensor) -> list:  # type: ignore[type-arg]
    """What each cache gives for the same images, one batch."""
    return [kept.get(kept.number(TRAIN).gather(which)[0], "key", compute) for kept in caches]


@pytest.mark.parametrize("innermost", [False, True])
@pytest.mark.parametrize("channels", [2, 5])
@pytest.mark.parametrize("limits", [(0,), (1,), (15_000,), (8_000, 13_000), (0, 30_000), (10**6,), (9_000, 10**6)])
def test_any_budget_gives_the_same(limits: tuple[int, ...], channels: int, innermost: bool) -> None:
    """Bit by bit and in layout, over epochs of any batch size, within the budget."""
    frozen = Frozen(channels, innermost=innermost)
    kept, reference = cache(*limits), cache()
    ours, theirs = kept.number(TRAIN), reference.number(TRAIN)
    frozen.seen = 0
    for epoch, size in enumerate((CHUNK, 3, 13, 1, 100)):
        for one, other in zip(batches(ours, size, epoch), batches(theirs, size, epoch), strict=True):
            assert equal(kept.get(one, "key", frozen), reference.get(other, "key", frozen))
            assert kept.bytes <= sum(limits)
    assert kept.peak_bytes <= sum(limits)
    assert frozen.sizes == {CHUNK}


def test_only_what_has_no_place_is_computed() -> None:
    """Of a partial table the rows that are there are read."""
    frozen = Frozen()
    kept = cache(5 * CHUNK * frozen.row + 100)
    images = kept.number(TRAIN)
    for x in batches(images):
        kept.get(x, "key", frozen)
    assert kept.bytes == 5 * CHUNK * frozen.row
    frozen.seen = 0
    kept.get(images.gather(torch.arange(40))[0], "key", frozen)
    assert frozen.seen == 0
    kept.get(images.gather(torch.tensor([3, 39, 40, 41, 89, 0]))[0], "key", frozen)
    assert frozen.seen == CHUNK
    for epoch in range(3):
        frozen.seen, batch = 0, 30
        for x in batches(images, batch, epoch):
            kept.get(x, "key", frozen)
        # Fifty images in three batches, each filled up to whole chunks.
        assert 50 <= frozen.seen < 50 + 3 * CHUNK


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_batches(data: st.DataObject) -> None:
    """Fewer images than a chunk, chunks of one, any batches with repetitions: the bits are those without a budget."""
    count, chunk = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 9))
    part, frozen = TRAIN.part(0, count), Frozen(2)
    limit = data.draw(st.integers(0, count * frozen.row + 10))
    split = data.draw(st.integers(0, limit))
    kept, none = cache(split, limit - split, chunk=chunk), cache(0, chunk=chunk)
    ours, theirs = kept.number(part), none.number(part)
    for _ in range(4):
        which = torch.tensor(data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=20)))
        assert equal(kept.get(ours.gather(which)[0], "key", frozen), none.get(theirs.gather(which)[0], "key", frozen))
        assert kept.peak_bytes <= limit
    assert frozen.sizes == {min(chunk, count)}


def test_two_splits() -> None:
    """Training and validation images have the same numbers and tables of their own."""
    kept, frozen = cache(), Frozen()
    train, valid = kept.number(TRAIN), kept.number(TEST)
    for _ in range(2):
        for images in (train, valid):
            for x, _ in images.batches(64, shuffle=False):
                (maps, _), (plain, _) = kept.get(x, "key", frozen), frozen(x.clone())
                frozen.seen -= len(x)
                assert torch.allclose(maps, plain, atol=1e-6)
    assert frozen.seen == 12 * CHUNK + 5 * CHUNK
    assert kept.bytes == (90 + 36) * frozen.row


def test_unknown_images_are_computed() -> None:
    """Test images, changed batches and those of another cache: as they are, in one batch, and nothing is kept."""
    kept, other, frozen = cache(), cache(), Frozen()
    numbered, foreign = kept.number(TRAIN), other.number(TRAIN)
    changed, _ = numbered.gather(torch.arange(11))
    changed += 1
    for x in (
        all_of(TEST.part(0, 11)),
        all_of(foreign.part(0, 11)),
        changed,
        tag_batch(changed.clone(), slots_of_nobody()),
    ):
        frozen.sizes = set()
        assert equal(kept.get(x, "key", frozen), frozen(x))
        assert frozen.sizes == {11}
    assert kept.peak_bytes == 0


def slots_of_nobody() -> Any:
    """Marks of someone else's."""
    from seu_bench.data.images import SampleIds

    return SampleIds("nobody", torch.arange(11))


def test_no_gradient() -> None:
    """Neither through what is read nor through what is computed; what is computed of it has one."""
    for kept in (cache(), cache(0), cache(20_000)):
        weight = torch.ones(3, requires_grad=True)

        def compute(x: Tensor, weight: Tensor = weight) -> tuple[Tensor]:
            return (x.flatten(1)[:, :3] * weight,)

        for images in (kept.number(TRAIN), TEST):
            x = all_of(images.part(0, 12)).requires_grad_()
            (value,) = kept.get(x, "key", compute)
            assert not value.requires_grad
            (value @ weight).sum().backward()
            assert weight.grad is not None and x.grad is None


def test_what_was_read_may_be_changed() -> None:
    """A caller that writes over what it was given changes nothing that is kept."""
    frozen = Frozen()
    for kept in (cache(), cache(0), cache(20_000)):
        images = kept.number(TRAIN)
        before = [value.clone() for value in kept.get(all_of(images), "key", frozen)]
        for value in kept.get(all_of(images), "key", frozen):
            value.fill_(7)
        assert equal(kept.get(all_of(images), "key", frozen), before)


def test_half_precision() -> None:
    """Half of the bytes, to three decimals or so what it is exactly."""
    exact, half, frozen = cache(), cache(dtype=torch.bfloat16), Frozen()
    for kept in (exact, half):
        kept.get(all_of(kept.number(TRAIN)), "key", frozen)
    assert 2 * half.bytes == exact.bytes == 90 * frozen.row
    for one, other in zip(*_answers([exact, half], frozen, torch.randperm(90)), strict=True):
        assert one.dtype == other.dtype == torch.float32
        assert not torch.equal(one, other)
        assert torch.allclose(one, other, rtol=2**-8, atol=1e-6)


@pytest.mark.parametrize("budget", [0, 20_000, 30_000])
def test_half_precision_with_any_budget(budget: int) -> None:
    """What has no place is rounded as what has: results do not depend on memory here either."""
    frozen = Frozen()
    which = torch.randperm(90)
    caches = [cache(dtype=torch.bfloat16), cache(budget, dtype=torch.bfloat16)]
    assert equal(*_answers(caches, frozen, which))


@pytest.mark.parametrize("budget", [0, 9_000, 10**6])
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 1, 1), (1, 1, 1), (1, 8, 1), (3, 8, 1)])
@pytest.mark.parametrize("innermost", [False, True])
def test_layouts_that_can_be_read_in_two_ways(shape: tuple[int, ...], innermost: bool, budget: int) -> None:
    """Maps of one channel or of one pixel: torch sees either layout in them, and computes accordingly."""
    channels, height, width = shape

    def compute(x: Tensor) -> tuple[Tensor]:
        y = x.expand(-1, channels, -1, -1)[:, :, :height, :width].contiguous()
        return (y.contiguous(memory_format=torch.channels_last) if innermost else y,)

    for size in (CHUNK, 3, 20):
        which = torch.randperm(90)[:size]
        torch.manual_seed(0)
        following = nn.Conv2d(channels, 5, 3, padding=1)
        one, other = _answers([cache(), cache(budget)], compute, which)
        assert equal(one, other)
        assert torch.equal(following(one[0]), following(other[0]))


def test_slices_and_turned_values() -> None:
    """What is neither contiguous nor has its channels innermost: the layout does not depend on the budget."""

    def compute(x: Tensor) -> tuple[Tensor, ...]:
        return x[:, :, ::2, ::2], x.flatten(2).transpose(1, 2), x.expand(-1, 3, -1, -1), x.flatten(1)[:, 3:5]

    which = torch.randperm(90)[:CHUNK]
    for budget in (0, 9_000, 10**6):
        assert equal(*_answers([cache(10**7), cache(budget)], compute, which))


# --- room -----------------------------------------------------------------------------------------------------------


def epoch_of(kept: FeatureCache, key: str, frozen: Frozen, *splits: TaskImages) -> int:
    """Ask for all images; how many were computed."""
    frozen.seen = 0
    for images in splits:
        for x in batches(images):
            kept.get(x, key, frozen)
    return frozen.seen


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
    """What the stage before asked for gives way at once; it stays where nobody needs the room."""
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
    """What is kept of a shorter beginning is read for the longer one; what lies between is not kept."""
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
    """Whatever shorter beginnings are kept, and however much of them."""
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
    """What a function asks for while chunks are computed makes no other table idle."""
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
