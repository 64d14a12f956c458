"""`aioqueue completion`: the script that teaches a shell to complete commands, options and their values."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ["completion"]

_PROGRAM = "aioqueue"
_VARIABLE = "_AIOQUEUE_COMPLETE"  # what click looks for, by the program's name


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script with which a shell completes `aioqueue`.

    bash: eval "$(aioqueue completion bash)" in ~/.bashrc; zsh: the same with zsh in ~/.zshrc; fish: aioqueue completion
    fish > ~/.config/fish/completions/aioqueue.fish
    """
    made = get_completion_class(shell)
    assert made is not None  # click has all three
    click.echo(made(context.find_root().command, {}, _PROGRAM, _VARIABLE).source())
