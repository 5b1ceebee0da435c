"""Plugins of Avalanche, corrected where, with a head per task, with dropout or on a CPU, the algorithm would silently
not be itself. What only measures (a teacher, importances, a look-ahead) measures the network in evaluation mode; what
trains is in training mode."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Any

import torch
from avalanche.training import plugins as stock
from avalanche.training.plugins.rwalk import RWalkPlugin
from avalanche.training.utils import zerolike_params_dict
from torch import nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

from seu_bench.models import modes_kept


class EvaluatingTeacher(stock.LwFPlugin):
    """LwF whose teacher answers in evaluation mode: its answers are those of the network as it was (Li & Hoiem 2016).
    Avalanche's teacher stays in training mode, so that dropout disturbs each answer, and its batch normalisation goes
    on moving with the new task's images."""

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Make the network as it is now the teacher."""
        super().after_training_exp(strategy, **kwargs)  # type: ignore[no-untyped-call]
        self.teach_by(strategy.model)

    def teach_by(self, model: nn.Module) -> None:
        """Make a copy of ``model`` the teacher."""
        self.lwf.prev_model = deepcopy(model).eval()


class EvaluatingRwalk(RWalkPlugin):
    """RWalk that trains in training mode. Avalanche's switches the network to evaluation mode to measure a gradient
    before each batch, and never back: it trains without dropout, and batch normalisation never learns its statistics.
    """

    penalty_strength = "ewc_lambda"

    def before_training_iteration(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Measure the gradient, Fisher information and loss, in evaluation mode."""
        with modes_kept(strategy.model):
            super().before_training_iteration(strategy, *args, **kwargs)  # type: ignore[no-untyped-call]

    def penalty_curvature(self, trained: Collection[str]) -> float | None:
        """Of ``ewc_lambda * sum_i p_i (theta_i - theta*_i)^2``."""
        return _largest(2 * self.ewc_lambda, self.exp_penalties, trained)


class EvaluatingMas(stock.MASPlugin):
    """MAS that measures importances in evaluation mode: the sensitivity of the function that was learned (Aljundi et
    al. 2018, section 4.1). Avalanche's measures with dropout, and moves batch normalisation's statistics after
    training ended. It also takes a batch's loss of exactly 0, which images that are told apart with ease have, for a
    missing one, and raises an error."""

    penalty_strength = "lambda_reg"

    def before_backward(self, strategy: Any, **kwargs: Any) -> None:
        """Add the penalty to the batch's loss, from the second task on."""
        if not self.importance or not self.params:
            return
        penalty = 0.0
        for name, weight in strategy.model.named_parameters():
            if name in self.importance:
                change = weight - self.params[name].expand(weight.shape)
                penalty = penalty + (self.importance[name].expand(weight.shape) * change.square()).sum()
        strategy.loss += self._lambda * penalty

    def _get_importance(self, strategy: Any) -> dict[str, Any]:
        """Mean over batches of the absolute gradient of the outputs' mean squared norm, by parameter."""
        model, dataset = strategy.model, strategy.experience.dataset
        importances = dict(zerolike_params_dict(model))
        moving = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        batches = DataLoader(dataset, strategy.train_mb_size, collate_fn=dataset.collate_fn)
        with modes_kept(model):
            model.eval()
            for x, _, *tasks in batches:  # a benchmark may have no task labels
                loss = torch.norm(model(x.to(strategy.device), tasks[0] if tasks else 0), p="fro", dim=1).pow(2).mean()
                # Other tasks' heads have no part in it.
                gradients = torch.autograd.grad(loss, list(moving.values()), materialize_grads=True)
                for name, gradient in zip(moving, gradients, strict=True):
                    importances[name].data += gradient.abs()
        for entry in importances.values():
            entry.data /= len(batches)
        return importances

    def penalty_curvature(self, trained: Collection[str]) -> float | None:
        """Of ``lambda_reg * sum_i O_i (theta_i - theta*_i)^2``."""
        return _largest(2 * self._lambda, self.importance, trained)


class EvaluatingMir(stock.MIRPlugin):
    """MIR whose memory offers every class, and whose look-ahead compares losses in evaluation mode.

    Avalanche's leaves out classes whose number occurs in the last batch; where each task counts its classes from 0,
    that is nearly all of them, and nothing would be replayed. Its two losses of an image, before and after the step
    that is tried, are those of two different dropout masks, which differ by more than the step.
    """

    replay_loader: Any

    def before_backward(self, strategy: Any, **kwargs: Any) -> None:
        """Add the loss of the images that a step on this batch alone would harm most (Aljundi et al. 2019)."""
        if self.replay_loader is None:
            return
        model = strategy.model
        images, labels, tasks = next(self.replay_loader)
        images, labels = images.to(strategy.device), labels.to(strategy.device)
        names, weights = zip(*model.named_parameters(), strict=True)
        gradients = torch.autograd.grad(
            strategy.loss, weights, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        rate = strategy.optimizer.param_groups[0]["lr"]
        moved = {name: w - rate * g for name, w, g in zip(names, weights, gradients, strict=True)}
        with torch.no_grad(), modes_kept(model):
            model.eval()
            before = cross_entropy(model(images, tasks), labels, reduction="none")
            after = cross_entropy(functional_call(model, moved, (images, tasks)), labels, reduction="none")
        chosen = torch.argsort(after - before)[len(images) - self.batch_size_mem :]
        strategy.loss += cross_entropy(model(images[chosen], tasks[chosen.cpu()]), labels[chosen])

    def after_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Update the memory."""
        self.storage_policy.update(strategy, **kwargs)
        self.make_loader()

    def make_loader(self) -> None:
        """An endless loader of the memory, if there is enough in it; the first batch is drawn in the next task."""
        buffer = self.storage_policy.buffer
        self.replay_loader = None
        if len(buffer) > self.batch_size_mem:
            self.replay_loader = _endless(DataLoader(buffer, self.subsample, shuffle=True))


class CopyingSi(stock.SynapticIntelligencePlugin):
    """SI that keeps copies of weights. On a CPU Avalanche's keeps views of the weights themselves: no path is ever
    seen, every importance is 0, and nothing is protected."""

    penalty_strength = "si_lambda"

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Keep the weights that the task begins with."""
        super().before_training_exp(strategy, **kwargs)
        _copy(self.ewc_data[0])

    def before_training_iteration(self, strategy: Any, **kwargs: Any) -> None:
        """Keep the weights that the batch begins with."""
        super().before_training_iteration(strategy, **kwargs)
        _copy(self.syn_data["old_theta"])

    def penalty_curvature(self, trained: Collection[str]) -> float | None:
        """Of ``si_lambda / 2 * sum_i O_i (theta_i - theta*_i)^2``."""
        strength: Any = self.si_lambda
        return _largest(strength[-1], self.ewc_data[1], trained)


class WholeReset(stock.FromScratchTrainingPlugin):
    """From scratch with everything reset. Avalanche's resets parameters, and leaves batch normalisation the statistics
    of the task before."""

    def before_training_exp(self, strategy: Any, *args: Any, **kwargs: Any) -> None:
        """Put the initial weights and buffers back."""
        strategy.model.load_state_dict(self.initial_weights)


class HeadOfTheTask(stock.SupervisedPlugin):  # type: ignore[type-arg]
    """Points CWR* to the head of the task that begins. By itself it takes the last head of the model for all tasks,
    and mixes classes of different heads that have the same number."""

    def __init__(self, cwr: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cwr = cwr

    def before_training_exp(self, strategy: Any, **kwargs: Any) -> None:
        """Choose the head and reset the state of the last one; one head for all tasks keeps its own."""
        model = self.cwr.model
        if strategy.model.scenario != "task":
            # In the precision of the head, where they were put: a run that is resumed finds the same there.
            weights = model.heads[0].weight.detach().cpu().numpy()
            model.saved_weights = {label: weights[label].copy() for label in model.past_j}
            return
        self.cwr.cwr_layer_name = f"heads.{strategy.experience.current_experience}"
        self.cwr.model.saved_weights.clear()
        self.cwr.model.past_j.clear()


def _largest(strength: float, importances: Mapping[str, Any] | None, among: Collection[str]) -> float | None:
    """The largest importance times ``strength``; ``None`` where none is above 0: nothing is held yet."""
    found = [float(entry.data.max()) for name, entry in (importances or {}).items() if name in among]
    largest = strength * max(found, default=0.0)
    return largest if largest > 0 else None


def _copy(kept: Mapping[str, Any]) -> None:
    for entry in kept.values():
        entry.data = entry.data.clone()


def _endless(loader: Any) -> Any:
    while True:
        yield from loader
