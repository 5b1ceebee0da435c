"""A layer that grows by units, its weights in blocks by the step that added them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from seu_bench.models.chain import ChainLayer


class GrowingLayer(nn.Module):
    """A layer whose inputs and units were added in steps.

    Step k has the weights of the units that it added, from all inputs that there were then (``own``), and those from
    the inputs that it added to the units of earlier steps (``across``). A block without elements does not exist.

    Args:
        layer: of the chain that it grows like; its size and its weights do not matter.
    """

    def __init__(self, layer: ChainLayer) -> None:
        super().__init__()
        self.layer = layer
        #: Inputs and units that each step added.
        self.added: list[tuple[int, int]] = []
        self.own = nn.ParameterDict()
        self.across = nn.ParameterDict()
        self.biases = nn.ParameterDict()

    def size(self, step: int) -> tuple[int, int]:
        """Inputs and units as of a step; -1: before the first."""
        taken = self.added[: step + 1]
        return sum(inputs for inputs, _ in taken), sum(units for _, units in taken)

    def grow(self, inputs: int, units: int) -> None:
        """Add a step, its weights as torch draws them for a layer with all inputs that there are then.

        Args:
            inputs: units that the layer before, or the image, has more now.
            units: to add.
        """
        step = len(self.added)
        read, computed = self.size(step - 1)
        self.added.append((inputs, units))
        name = str(step)
        if units and read + inputs:
            made = self.layer.like(read + inputs, units)
            self.own[name] = nn.Parameter(made.weight.detach())
            if made.bias is not None:
                self.biases[name] = nn.Parameter(made.bias.detach())
        if inputs and computed:
            made = self.layer.like(read + inputs, computed)
            self.across[name] = nn.Parameter(made.weight.detach()[:, read * self.layer.spread :].clone())

    def widen(self, inputs: int, units: int) -> None:
        """Add to the newest step, behind what it has, its weights as :meth:`grow` draws them.

        Args:
            inputs: units that the layer before has more now.
            units: to add.
        """
        step = len(self.added) - 1
        read, computed = self.size(step)
        if not inputs and not units:
            return
        made = self.layer.like(read + inputs, computed + units)
        weight = made.weight.detach().clone()
        bias = None if made.bias is None else made.bias.detach().clone()
        if computed and read:
            old, known = self.weight(step), self.bias(step)
            weight, bias = weight.to(old.device), None if bias is None else bias.to(old.device)
            weight[:computed, : read * self.layer.spread] = old.detach()
            if bias is not None and known is not None:
                bias[:computed] = known.detach()
        self._renew((inputs + self.added[step][0], units + self.added[step][1]), weight, bias)

    def keep(self, inputs: Tensor, units: Tensor) -> None:
        """Remove inputs and units that the newest step added.

        Args:
            inputs: which of them stay, bool.
            units: which of them stay, bool.
        """
        step = len(self.added) - 1
        read, computed = self.size(step - 1)
        if bool(inputs.all()) and bool(units.all()):
            return
        rows = torch.cat([units.new_ones(computed), units])
        columns = torch.cat([inputs.new_ones(read), inputs]).repeat_interleave(self.layer.spread)
        bias = self.bias(step)
        self._renew(
            (int(inputs.sum()), int(units.sum())),
            self.weight(step).detach()[rows][:, columns],
            None if bias is None else bias.detach()[rows],
        )

    def _renew(self, added: tuple[int, int], weight: Tensor, bias: Tensor | None) -> None:
        """Let the newest step have added so much, with blocks that are cut out of the whole layer's weights."""
        step = len(self.added) - 1
        self.added[step] = added
        for part in (self.own, self.across, self.biases):
            if str(step) in part:
                del part[str(step)]
        read, computed = self.size(step - 1)
        inputs, units = added
        cut = read * self.layer.spread
        if units and read + inputs:
            self.own[str(step)] = nn.Parameter(weight[computed:].clone())
            if bias is not None:
                self.biases[str(step)] = nn.Parameter(bias[computed:].clone())
        if inputs and computed:
            self.across[str(step)] = nn.Parameter(weight[:computed, cut:].clone())

    def parts(self, step: int, weight: Tensor, bias: Tensor | None) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Cut what belongs to a whole layer's weights into its blocks, the inverse of :meth:`weight` and :meth:`bias`.

        Args:
            step: as of which the layer is whole.
            weight: of the shape of :meth:`weight`; of any type, such as bool for a mask.
            bias: of the shape of :meth:`bias`.

        Yields:
            Each parameter up to the step, and a view of its part.
        """
        for at in range(step + 1):
            name, (read, computed), (_, units) = str(at), self.size(at - 1), self.added[at]
            known = self.size(at)[0] * self.layer.spread
            if name in self.own:
                yield self.own[name], weight[computed : computed + units, :known]
            if name in self.across:
                yield self.across[name], weight[:computed, read * self.layer.spread : known]
            if name in self.biases and bias is not None:
                yield self.biases[name], bias[computed : computed + units]

    def assign(self, step: int, weight: Tensor, bias: Tensor | None) -> None:
        """Write a whole layer's weights, as of a step, into its blocks."""
        with torch.no_grad():
            for parameter, part in self.parts(step, weight, bias):
                parameter.copy_(part)

    def weight(self, step: int) -> Tensor:
        """The weights as of a step, ``[units, inputs, k, k]`` or ``[units, inputs * spread]``."""
        found: Tensor | None = None
        for name in map(str, range(step + 1)):
            if found is not None and name in self.across:
                found = torch.cat([found, self.across[name]], dim=1)
            if name in self.own:
                found = self.own[name] if found is None else torch.cat([found, self.own[name]])
        if found is None:
            raise ValueError("a layer without units has no weights")
        return found

    def bias(self, step: int) -> Tensor | None:
        """The biases ``[units]`` as of a step; ``None``: there are none."""
        parts = [self.biases[name] for name in map(str, range(step + 1)) if name in self.biases]
        return torch.cat(parts) if len(parts) > 1 else next(iter(parts), None)

    def forward(self, x: Tensor, step: int) -> Tensor:
        """The units as of a step, before their activation; ``x`` has the inputs as of the same step."""
        return self.layer.compute(x, self.weight(step), self.bias(step))

    def blocks(self, steps: Sequence[int]) -> Iterator[nn.Parameter]:
        """The parameters that some steps added."""
        for name in map(str, steps):
            yield from (part[name] for part in (self.own, self.across, self.biases) if name in part)
