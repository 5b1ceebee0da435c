"""Scripts of bash, zsh and fish, and how each hands over the line that is completed.

click has all three, and a part of each is replaced: bash splits words at ``=`` and ``:``, so that ``-o epochs=8`` would
reach click in three pieces; it and zsh end every completion by a blank, which ``-o epochs=`` must not have; zsh and
fish replace whole words; and fish would cut ``ewc,naive`` off at the comma.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    split_arg_string,
)

#: The command, and the variable by which its script asks it.
PROGRAM: Final = "seu-bench"
VARIABLE: Final = "_SEU_BENCH_COMPLETE"


class Bash(BashComplete):
    """bash: the line up to the cursor is split here, and what readline does not replace is cut off there."""

    source_template = r"""%(complete_func)s() {
    local type value text=${COMP_LINE:0:COMP_POINT} breaks= cut=
    local word=${text##*[[:blank:]]}
    [[ $COMP_WORDBREAKS == *=* ]] && breaks+='='
    [[ $COMP_WORDBREAKS == *:* ]] && breaks+=':'
    [[ -n $breaks && $word == *[$breaks]* ]] && cut=${word%%"${word##*[$breaks]}"}
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("${value#"$cut"}") ;;
        esac
        [[ $value == *= ]] && compopt -o nospace
    done < <(%(complete_var)s=bash_complete COMP_WORDS="$text" "$1" 2>/dev/null)
    return 0
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def source(self) -> str:
        """Return the script; which version of bash will read it is not known here."""
        return ShellComplete.source(self)

    def get_completion_args(self) -> tuple[list[str], str]:
        """Split the line into finished words and the one that is being typed."""
        text = os.environ["COMP_WORDS"]
        words = split_arg_string(text)[1:]
        return (words, "") if not words or text[-1:].isspace() else (words[:-1], words[-1])


class _WholeWord(ShellComplete):
    """A shell that replaces the whole word, ``--strategy=e``, where click completes the part behind the sign."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """Complete the word, with what stands before the sign in front of each value."""
        found = super().get_completions(args, incomplete)
        option, sign, _ = incomplete.partition("=")
        if not sign or not option.startswith("--"):
            return found
        return [CompletionItem(f"{option}={it.value}", it.type, it.help) for it in found]


class Zsh(_WholeWord, ZshComplete):
    """zsh: keys such as ``epochs=`` are not followed by a blank."""

    source_template = r"""#compdef %(prog_name)s

%(complete_func)s() {
    local -a plain described open response
    local type key descr
    local -x COMP_WORDS="${words[*]}" COMP_CWORD=$((CURRENT-1)) %(complete_var)s=zsh_complete
    response=("${(@f)$(${words[1]} 2>/dev/null)}")
    for type key descr in ${response}; do
        case $type in
            dir) _path_files -/ ;;
            file) _path_files -f ;;
            plain)
                if [[ $key == *= ]]; then
                    open+=("$key":"$descr")
                elif [[ $descr == _ ]]; then
                    plain+=("$key")
                else
                    described+=("$key":"$descr")
                fi ;;
        esac
    done
    [[ -n $open ]] && _describe -V options open -U -S ''
    [[ -n $described ]] && _describe -V unsorted described -U
    [[ -n $plain ]] && compadd -U -V unsorted -a plain
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    %(complete_func)s "$@"
else
    compdef %(complete_func)s %(prog_name)s
fi
"""

    def format_completion(self, item: CompletionItem[str]) -> str:
        """Give every open key a description, so that its script finds the key before the colon."""
        if item.value.endswith("=") and not item.help:
            item = CompletionItem(item.value, item.type, help="option")
        return super().format_completion(item)


class Fish(_WholeWord, FishComplete):
    """fish: values may hold commas, at the first of which alone an answer is split."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split -m 1 ","')


#: What completes in each shell.
SHELLS: Final[Mapping[str, type[ShellComplete]]] = {"bash": Bash, "zsh": Zsh, "fish": Fish}


def script(command: click.Command, shell: str) -> str:
    """Return the script that teaches a shell to complete the command."""
    return SHELLS[shell](command, {}, PROGRAM, VARIABLE).source()


def answer(command: click.Command, instruction: str) -> int:
    """Answer the script of a shell: print completions, or the script itself.

    Args:
        command: the group of all commands.
        instruction: of the environment variable, e.g. ``bash_complete`` or ``zsh_source``.

    Returns:
        The exit status: 1 where nothing could be completed, whatever the reason. Nothing is said of it: the message
        would stand in the middle of the line that somebody types.
    """
    shell, _, what = instruction.partition("_")
    if shell not in SHELLS or what not in ("source", "complete"):
        return 1
    try:
        completer = SHELLS[shell](command, {}, PROGRAM, VARIABLE)
        if text := completer.source() if what == "source" else completer.complete():
            click.echo(text)
    except Exception:
        return 1
    return 0
