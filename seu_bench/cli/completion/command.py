"""``seu-bench completion``: the script that completes commands, options and names in a shell."""

from __future__ import annotations

import os
from pathlib import PurePath

import click

from seu_bench.cli.completion.shells import SHELLS, script
from seu_bench.errors import RequestError


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)), required=False)
@click.pass_context
def completion(context: click.Context, shell: str | None) -> None:
    """Print the script that completes commands, options, names and run ids in a shell.

    SHELL is bash (4.4 or newer), zsh or fish, by default that of $SHELL. One line sets it up:

    \b
      bash, in ~/.bashrc:  eval "$(seu-bench completion bash)"
      zsh, in ~/.zshrc, after compinit:  eval "$(seu-bench completion zsh)"
      fish:  seu-bench completion fish > ~/.config/fish/completions/seu-bench.fish
    """
    name = shell or PurePath(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        what = f"there is no completion for the shell {name!r}" if name else "$SHELL does not say which shell this is"
        raise RequestError(what, remedy=f"name one: seu-bench completion {'|'.join(SHELLS)}")
    click.echo(script(context.find_root().command, name), nl=False)
