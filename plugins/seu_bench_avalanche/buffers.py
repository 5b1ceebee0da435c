"""Memories that hold images of earlier tasks: as places in the stream, or as tensors where Avalanche keeps tensors."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from avalanche.benchmarks.utils import _taskaware_classification_subset
from avalanche.benchmarks.utils.data_loader import GroupBalancedInfiniteDataLoader
from avalanche.benchmarks.utils.utils import concat_datasets
from avalanche.training.storage_policy import ClassBalancedBuffer, ExperienceBalancedBuffer, ReservoirSamplingBuffer

from seu_bench.training import KeptImages
from seu_bench_avalanche.memory import Memory, NoMemory, check_same_form, copied
from seu_bench_avalanche.places import dataset_at, kept_images, places_of, task_dataset, tasks_of


class GemMemory(Memory):
    """Images, labels and task labels of each earlier task, which GEM keeps as tensors."""

    def state(self) -> dict[str, Any]:
        """``[x, y, t]`` of each task."""
        plugin = self.plugin
        return {
            "batches": [
                [kept[task].clone() for kept in (plugin.memory_x, plugin.memory_y, plugin.memory_tid)]
                for task in range(len(plugin.memory_x))
            ]
        }

    def contents(self) -> dict[str, Any]:
        """The images."""
        tasks = self.strategy.experience.origin_stream
        kept = self.plugin.memory_x.items()
        return {"exemplars": [KeptImages(len(x), kept_images(tasks[task].dataset)[0].shape) for task, x in kept]}

    def load(self, state: Mapping[str, Any], stream: Any) -> None:
        """Put them back; task labels are on the CPU, as in every batch."""
        plugin, device = self.plugin, self.strategy.device
        for task, (images, labels, tasks) in enumerate(state["batches"]):
            plugin.memory_x[task] = images.to(device, copy=True)
            plugin.memory_y[task] = labels.to(device, copy=True)
            plugin.memory_tid[task] = tasks.to("cpu", copy=True)


class AgemMemory(Memory):
    """The images of each earlier task."""

    def state(self) -> dict[str, Any]:
        """Their places, by task."""
        return {"buffers": [places_of(buffer) for buffer in self.plugin.buffers]}

    def contents(self) -> dict[str, Any]:
        """The images."""
        return {"exemplars": [kept_images(buffer) for buffer in self.plugin.buffers]}

    def load(self, state: Mapping[str, Any], stream: Any) -> None:
        """Put them back, with the endless loader that A-GEM makes of them after each task."""
        plugin = self.plugin
        plugin.buffers = [dataset_at(places, stream) for places in state["buffers"]]
        if plugin.buffers:
            share = plugin.sample_size // len(plugin.buffers)
            plugin.buffer_dataloader = GroupBalancedInfiniteDataLoader(plugin.buffers, batch_size=share)
            plugin.buffer_dliter = iter(plugin.buffer_dataloader)


class PolicyMemory(Memory):
    """A storage policy of Avalanche: images in groups, by task or by class, each a reservoir."""

    @property
    def policy(self) -> ExperienceBalancedBuffer | ClassBalancedBuffer:
        """The storage policy."""
        policy: ExperienceBalancedBuffer | ClassBalancedBuffer = self.plugin.storage_policy
        return policy

    def state(self) -> dict[str, Any]:
        """For each group, in their order: its key, its size, places of its images, and their weights."""
        return {
            "groups": [
                [key, group.max_size, places_of(group.buffer), group._buffer_weights.clone()]
                for key, group in self.policy.buffer_groups.items()
            ]
        }

    def contents(self) -> dict[str, Any]:
        """The images and their weights, by which they make room for others."""
        groups = self.policy.buffer_groups.values()
        return {"exemplars": [[kept_images(group.buffer), group._buffer_weights] for group in groups]}

    def load(self, state: Mapping[str, Any], stream: Any) -> None:
        """Put the groups back."""
        policy = self.policy
        for key, size, places, weights in state["groups"]:
            if len(weights) != len(places):
                raise ValueError(f"group {key} has {len(places)} images and {len(weights)} weights")
            group = policy.buffer_groups[key] = ReservoirSamplingBuffer(size)
            images: Any = dataset_at(places, stream)
            group.buffer = images
            group._buffer_weights = weights.to("cpu", copy=True)
            if isinstance(policy, ClassBalancedBuffer):
                # Avalanche's own kind of data set, image by image: it puts those together in ways that ours, which
                # gathers whole batches, does not follow.
                group.buffer = _taskaware_classification_subset(images)
                # In the order in which they were first seen: how a set is iterated hangs on it, and which groups get
                # one image more hangs on that.
                policy.seen_classes.add(key)
        if isinstance(policy, ExperienceBalancedBuffer):
            policy._num_exps = len(policy.buffer_groups)


class MirMemory(PolicyMemory):
    """A storage policy, and an endless loader of what is in it."""

    def load(self, state: Mapping[str, Any], stream: Any) -> None:
        """Put the groups back and make the loader."""
        super().load(state, stream)
        self.plugin.make_loader()


class ErAceMemory(PolicyMemory):
    """A storage policy that belongs to the strategy itself."""

    @property
    def plugin(self) -> Any:
        """The strategy."""
        return self.strategy


class GdumbMemory(PolicyMemory):
    """A storage policy, and the initial weights."""

    def state(self) -> dict[str, Any]:
        """Both."""
        model = self.plugin.init_model
        return super().state() | {"initial": None if model is None else copied(model.state_dict())}

    def contents(self) -> dict[str, Any]:
        """Both."""
        return super().contents() | {"initial weights": self.plugin.init_model}

    def load(self, state: Mapping[str, Any], stream: Any) -> None:
        """Put both back."""
        super().load(state, stream)
        if state["initial"] is not None:
            model = deepcopy(self.strategy.model)
            check_same_form(state["initial"], model.state_dict())
            model.load_state_dict(state["initial"])
            self.plugin.init_model = model


class CumulativeMemory(Memory):
    """All images of all earlier tasks."""

    def state(self) -> dict[str, Any]:
        """The tasks."""
        dataset: Any = self.strategy.dataset  # type: ignore[attr-defined]
        return {"tasks": [] if dataset is None else tasks_of(dataset)}

    def contents(self) -> dict[str, Any]:
        """The images."""
        return {"exemplars": kept_images(self.strategy.dataset)}  # type: ignore[attr-defined]

    def load(self, state: Mapping[str, Any], stream: Any) -> None:
        """Put the data set together again."""
        if state["tasks"]:
            datasets = [task_dataset(task, stream) for task in state["tasks"]]
            self.strategy.dataset = concat_datasets(datasets)  # type: ignore[attr-defined]


class JointMemory(NoMemory):
    """All images of the stream: what is trained once has to have them at once."""

    def contents(self) -> dict[str, Any]:
        """The images."""
        experiences = self.strategy._experiences  # type: ignore[attr-defined]
        return {"exemplars": [kept_images(experience.dataset) for experience in experiences]}
