"""``groupcoord completion``: a shell script that completes commands, options, groups and topics."""

import click
from click.shell_completion import get_completion_class

from groupcoord_spark.cli.options import command
from groupcoord_spark.cli.render import print_exactly

_PROGRAM = "groupcoord"
_VARIABLE = "_GROUPCOORD_COMPLETE"


@command(epilog="Example: groupcoord completion bash > ~/.local/share/bash-completion/completions/groupcoord")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script that completes commands, options, groups and topics in a shell.

    bash: write the script into ~/.local/share/bash-completion/completions/groupcoord. zsh: into a file named _groupcoord in a directory of
    $fpath. fish: into ~/.config/fish/completions/groupcoord.fish.
    """
    kind = get_completion_class(shell)
    assert kind is not None, shell
    root = click.get_current_context().find_root().command
    script = kind(root, {}, _PROGRAM, _VARIABLE)
    # click's own source() asks for the version of an installed bash; the script is the same without the question.
    print_exactly((script.source_template % script.source_vars()).strip("\n") + "\n")
