"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from seu_bench.utils.text import parse_bytes

if TYPE_CHECKING:
    from seu_bench.config.run import Request
    from seu_bench.plugin.registry import Registry

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


def results_option(command: CommandT) -> CommandT:
    """``--results`` for every command that reads or writes results."""
    return click.option(
        "--results",
        type=click.Path(path_type=Path, file_okay=True),
        default=Path("results"),
        show_default=True,
        help="Folder of records and leaderboards.",
    )(command)


def data_option(command: CommandT) -> CommandT:
    """``--data-root`` for every command that reads data sets."""
    return click.option(
        "--data-root",
        type=click.Path(path_type=Path),
        default=None,
        help="Folder of data sets in torchvision's layout [default: $SEU_BENCH_DATA, or ~/.cache/seu-bench/data].",
    )(command)


def request_options(command: CommandT) -> CommandT:
    """What names a run: shared by ``run`` and ``cost``."""
    options = [
        click.option("--strategy", default="seu", show_default=True, help="Who learns (seu-bench list strategies)."),
        click.option(
            "--benchmark", default="split_digits", show_default=True, help="What is learned: a name or a TOML file."
        ),
        click.option("--searcher", default=None, help="Extension-unit searcher [default: the strategy's]."),
        click.option("--creator", default=None, help="Task-model creator [default: the strategy's]."),
        click.option("--protocol", default=None, help="Schedule and sizes [default: the benchmark's]."),
        click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Random seed."),
        click.option(
            "-o",
            "--option",
            "assignments",
            multiple=True,
            metavar="KEY=VALUE",
            help="An option of the strategy, or searcher.KEY, creator.KEY, benchmark.KEY; may be repeated.",
        ),
        click.option(
            "--limit",
            type=click.IntRange(min=4),
            default=None,
            help="At most so many images per task and split; never ranked.",
        ),
        click.option(
            "--precision",
            type=click.Choice(["float32", "bf16-features", "bf16"]),
            default="float32",
            show_default=True,
            help="What learning computes in: bf16 by autocast, or only outputs of frozen layers kept in it. "
            "Accuracies are measured in float32.",
        ),
        click.option("--synthetic", is_flag=True, help="Made-up images in place of each data set; never ranked."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def logger_options(command: CommandT) -> CommandT:
    """``--log`` and ``--log-option`` for every command that makes runs: names, and assignments of their options."""
    options = [
        click.option(
            "--log",
            "loggers",
            multiple=True,
            callback=_names,
            metavar="NAME[,NAME]",
            help="Write the run down for another program as well (seu-bench list loggers); may be repeated.",
        ),
        click.option(
            "--log-option",
            "logger_assignments",
            multiple=True,
            metavar="NAME.KEY=VALUE",
            help="An option of a logger; may be repeated.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _names(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """A callback for an option: names of several values, and of lists with commas, each once."""
    names = (name.strip() for value in values for name in value.split(","))
    return tuple(dict.fromkeys(name for name in names if name))


def number_of_bytes(_context: click.Context, _parameter: click.Parameter, value: str | None) -> int | None:
    """A callback for an option: ``0``, ``500M`` or ``2G`` (powers of 1024) as a number."""
    try:
        return None if value is None else parse_bytes(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def device_option(command: CommandT) -> CommandT:
    """``--device`` for every command that computes."""
    return click.option(
        "--device",
        default="auto",
        show_default=True,
        help="cpu, cuda, cuda:1, ...; auto takes an accelerator if there is one.",
    )(command)


def make_registry() -> Registry:
    """What is installed."""
    from seu_bench.plugin.registry import Registry

    return Registry()


def make_request(asked: dict[str, Any]) -> Request:
    """The request that :func:`request_options` describe."""
    from seu_bench.config.options import parse_assignments
    from seu_bench.config.run import Request

    options = parse_assignments(asked.pop("assignments"))
    return Request(options=options, **asked)
