"""Sizes of operations and units in closed form, from the specification, and a ridge classifier by scikit-learn: what
ours are compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from seu_bench_kit.genotypes import INPUTS, Genotype
from seu_bench_kit.search_space import CellPlan
from seu_bench_kit.transferability import RIDGE


def operation_parameters(operation: str, channels: int, stride: int) -> int:
    """Parameters of an operation in the super model (bias-free convolutions, affine BatchNorm)."""
    if operation.startswith("sep_conv"):
        kernel = int(operation[-1])
        return 2 * kernel**2 * channels + 2 * channels**2 + 4 * channels
    if operation.startswith("dil_conv"):
        kernel = int(operation[-1])
        return kernel**2 * channels + channels**2 + 2 * channels
    if operation == "skip_connect" and stride == 2:
        return channels**2 + 2 * channels
    return 0


def unit_parameters(genotype: Genotype, plan: CellPlan) -> int:
    """Parameters of an extension unit at a place of the super model, in closed form."""
    total = (plan.older + plan.newer) * plan.channels + 4 * plan.channels
    for edge in genotype.edges(plan.kind):
        stride = 2 if plan.reduction and edge.source < INPUTS else 1
        total += operation_parameters(edge.operation, plan.channels, stride)
    return total


def ridge_by_sklearn(rows: Tensor, labels: Tensor, check: Tensor, check_labels: Tensor) -> float:
    """Accuracy of scikit-learn's ridge on one-hot targets and standardised features."""
    sklearn: Any = StandardScaler
    scaler = sklearn().fit(rows.double().numpy())
    sklearn = Ridge
    targets = np.eye(int(labels.max()) + 1)[labels.numpy()]
    ridge = sklearn(alpha=RIDGE * len(rows)).fit(scaler.transform(rows.double().numpy()), targets)
    answers = ridge.predict(scaler.transform(check.double().numpy())).reshape(len(check), -1).argmax(axis=1)
    return float((answers == check_labels.numpy()).mean())
