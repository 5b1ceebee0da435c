"""Draw genotypes, score each at initialisation, take the best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seu_bench.errors import RequestError, RunError
from seu_bench.models import counted_as
from seu_bench.training import EpochReport, Stage
from seu_bench_kit import SearchTask, genotype_network
from seu_bench_zero_cost import ZeroCostOptions

#: Those whose output has the sign of their input.
ACTIVATIONS = (nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Tanh)


def naswot(network: nn.Module, images: Tensor) -> float:
    """NASWOT: how differently images switch the activations (Mellor et al., "Neural Architecture Search without
    Training", ICML 2021, equation 2).

    Each image has a binary code: which units are active. ``K[i, j]`` is the number of units on which images i and j
    agree; the score is ``log |det K|``. Published for ReLU; a unit of another activation is active where it is above 0.

    Args:
        network: in training mode, so that BatchNorm uses the batch's statistics; its running ones are changed.
        images: ``[N, ...]``, at least two.

    Raises:
        RequestError: the network has no activation that is a module of :data:`ACTIVATIONS`.
    """
    agreed = torch.zeros(len(images), len(images), dtype=torch.float64, device=images.device)

    def add(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        active = (output.detach() > 0).flatten(1).to(torch.float32)
        inactive = 1 - active
        with counted_as(lambda: 0):  # no layer of the network
            # Sums of at most 2**24 ones are exact in 32 bits.
            agreed.add_((active @ active.T + inactive @ inactive.T).to(torch.float64))

    hooks = [module.register_forward_hook(add) for module in network.modules() if isinstance(module, ACTIVATIONS)]
    if not hooks:
        what = "NASWOT sees no unit: the network has none of the activations that it knows as a module"
        raise RequestError(what, where="searcher.score", remedy="give -o searcher.score=synflow")
    try:
        with torch.no_grad():
            network(images)
    finally:
        for hook in hooks:
            hook.remove()
    # Rounding would hide that equal codes make the determinant 0: an image agrees with itself on every unit, and with
    # another only if their codes are equal.
    same = (agreed == agreed.diagonal()[:, None]).sum()
    with counted_as(lambda: 0):  # as above
        sign, logarithm = torch.linalg.slogdet(agreed)
    pairs, sign, logarithm = torch.stack([same.double(), sign, logarithm]).tolist()
    # The kernel is a Gram matrix: a determinant below zero is a zero that rounding moved.
    return logarithm if pairs <= len(images) and sign > 0 else -math.inf


def synflow(network: nn.Module, shape: tuple[int, ...]) -> float:
    """SynFlow: signal over all paths of the network (Tanaka et al., "Pruning neural networks without any data
    by iteratively conserving synaptic flow", NeurIPS 2020, equation 2; as a score of architectures: Abdelfattah et
    al., ICLR 2021).

    With every parameter replaced by its absolute value, a sample of ones gives outputs of sum R; the score is
    ``log(sum over parameters of theta * dR/dtheta)``. BatchNorm uses its initial statistics, 0 and 1. Computed in
    double precision: deep networks reach numbers beyond single precision. All signals are positive, on which ReLU is
    the identity; so is any other of :data:`ACTIVATIONS` here, for a tanh would saturate, and the sum count no paths.
    """
    parameters = {name: tensor.detach().abs().double().requires_grad_() for name, tensor in network.named_parameters()}
    buffers = {
        name: tensor.double() if tensor.is_floating_point() else tensor for name, tensor in network.named_buffers()
    }
    device = next(network.parameters()).device
    ones = torch.ones(1, *shape, dtype=torch.float64, device=device)
    was_training = network.training
    network.eval()
    others = [it for it in network.modules() if isinstance(it, ACTIVATIONS) and not isinstance(it, nn.ReLU)]
    hooks = [module.register_forward_hook(lambda _module, inputs, _output: inputs[0]) for module in others]
    try:
        output: Tensor = torch.func.functional_call(network, (parameters, buffers), (ones,)).sum()
    finally:
        network.train(was_training)
        for hook in hooks:
            hook.remove()
    gradients = torch.autograd.grad(output, list(parameters.values()), allow_unused=True)
    pairs = zip(parameters.values(), gradients, strict=True)
    signals = [(parameter.detach() * gradient).sum() for parameter, gradient in pairs if gradient is not None]
    total = sum(torch.stack(signals).tolist())
    if math.isnan(total):
        return math.nan
    return math.log(total) if total > 0 else -math.inf


class ZeroCostSearch(Stage[Any]):
    """The search of one task. An epoch draws one genotype and scores it; all see the same batch of training images."""

    state_attributes = ("images", "genotypes", "scores")

    def __init__(self, options: ZeroCostOptions, task: SearchTask) -> None:
        super().__init__("search", task.task, options.candidates, task.seed, task.device)
        if task.input.kind == "tokens" and options.score != "naswot":
            what = "SynFlow needs a sample of ones, and no token is one"
            raise RequestError(what, where="searcher.score", remedy="give -o searcher.score=naswot")
        self.search_task = task
        self.schedule = options.applied_to(task.schedule)
        count = min(options.images, len(task.images))
        with self.randomness.active():
            chosen = torch.randperm(len(task.images))[:count]
        self.images = task.images.gather(chosen.to(task.images.device))[0]
        self.genotypes: list[dict[str, Any]] = []
        self.scores: dict[str, list[float]] = {
            name: [] for name in ("naswot", "synflow") if options.score in (name, "both")
        }

    def run_epoch(self) -> EpochReport:
        """Draw a genotype and score it."""
        genotype = self.search_task.space.random_genotype()
        network = genotype_network(self.search_task, self.schedule, genotype)
        self.genotypes.append(genotype.to_dict())
        self.images = self.images.to(self.device)
        if "synflow" in self.scores:
            self._keep("synflow", synflow(network, tuple(self.images.shape[1:])))
            self.count_images(1)
        if "naswot" in self.scores:
            self._keep("naswot", naswot(network, self.images))
            self.count_images(len(self.images))
        return EpochReport()

    def result(self) -> Any:
        """The genotype of the best score, or of the best sum of ranks; of equal ones the first drawn."""
        totals = [sum(ranks) for ranks in zip(*(rank_scores(scores) for scores in self.scores.values()), strict=True)]
        return self.search_task.space.from_dict(self.genotypes[totals.index(max(totals))])

    def _keep(self, name: str, score: float) -> None:
        if math.isnan(score):
            raise RunError(f"the score {name} of genotype {len(self.genotypes)} is NaN")
        self.scores[name].append(score)


def rank_scores(scores: Sequence[float]) -> list[int]:
    """For each score the number of scores below it: 0 for the worst, equal for equal ones."""
    return [sum(other < score for other in scores) for score in scores]
