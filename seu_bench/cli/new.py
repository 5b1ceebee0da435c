"""``seu-bench new``: files that plugins of your own begin with."""

from __future__ import annotations

import importlib.util
import keyword
from pathlib import Path
from typing import Final

import click

from seu_bench.config.commands import command
from seu_bench.errors import OptionError
from seu_bench.plugin.registry import Registry
from seu_bench.utils.files import write_atomic

_METHOD: Final = '''\
"""NAME: experience replay, to begin a method of your own with."""

from __future__ import annotations

from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import cross_entropy

from seu_bench import Method, Reservoir
from seu_bench.config import BackboneOptions


class CLASS(Method):
    """Experience replay: each batch is joined by remembered images."""

    name = "NAME"
    check_options = {"backbone": "mlp", "memory": 20}

    class Options(BackboneOptions):
        """What -o sets, beside the options of training and of the network."""

        memory: PositiveInt = Field(200, description="images kept")
        weight: NonNegativeFloat = Field(1.0, description="weight of the loss of remembered images")

    options: Options

    def setup(self) -> None:
        """Assign the state, which is saved, restored and counted."""
        self.memory = Reservoir(self.options.memory)

    def batch_loss(self, x: Tensor, y: Tensor, task: Tensor, logits: Tensor) -> Tensor:
        """``CE(x, y) + weight * CE(x', y')`` of images [N, C, H, W], labels [N], tasks [N] and logits [N, outputs]."""
        loss = cross_entropy(logits, y)
        if len(self.memory):
            old = self.memory.draw(len(y))
            loss = loss + self.options.weight * cross_entropy(self.replay(old.x, old.task), old.y)
        self.memory.add(x=x, y=y, task=task)
        return loss
'''
_TEST: Final = '''\
"""Contract of NAME: learns, resumes to the bit, counts what it keeps."""

import NAME
from seu_bench.testing import StrategyContract


class TestCLASS(StrategyContract):
    strategy = "NAME"
    plugins = [NAME]
    options = NAME.CLASS.check_options
'''


@click.group()
def new() -> None:
    """Write the file that a method of your own begins with, and its test."""


@new.command()
@click.argument("name")
def method(name: str) -> None:
    """Write NAME.py, a method of one file, and test_NAME.py, the test of its contract, into the working folder."""
    if not name.isidentifier() or keyword.iskeyword(name) or not name.isascii():
        raise OptionError(f"{name!r} is no name of a module of Python", remedy="use letters, digits and _: my_method")
    if name in Registry().strategies:
        raise OptionError(f"there is a strategy {name!r}", remedy=f"choose another name: my_{name}")
    files = {Path(f"{name}.py"): _METHOD, Path(f"test_{name}.py"): _TEST}
    if there := [str(path) for path in files if path.exists()]:
        raise OptionError(f"{' and '.join(there)} would be replaced", remedy="choose another name, or remove it")
    if importlib.util.find_spec(name) is not None:
        raise OptionError(f"{name!r} is a module that is installed", remedy=f"choose another name: my_{name}")
    for path, text in files.items():
        title = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
        write_atomic(path, text.replace("NAME", name).replace("CLASS", title))
    plugin = (Path(f"{name}.py"),)
    click.echo(f"written: {' and '.join(map(str, files))}. To go on:")
    click.echo("  " + command("check-plugin", f"{name}.py"))
    click.echo(f"  pytest test_{name}.py")
    click.echo("  " + command("run", strategy=name, plugin=plugin, protocol="smoke"))
    click.echo("  " + command("sweep", strategy=f"{name},naive", seeds="0-2", plugin=plugin, protocol="quick"))
    click.echo("  " + command("leaderboard"))
