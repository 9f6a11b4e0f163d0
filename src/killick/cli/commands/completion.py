"""Completion in shells: commands, options, and the newest sessions' ids."""

import click

from killick.cli.frame import Frame, command


@command(
    ("killick completion bash", 'for ~/.bashrc: eval "$(killick completion bash)"'),
    ("killick completion zsh", 'for ~/.zshrc: eval "$(killick completion zsh)"'),
    ("killick completion fish", "for ~/.config/fish/completions/killick.fish"),
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(frame: Frame, shell: str) -> None:
    """Print what makes a shell complete commands, options and ids."""
    from click.shell_completion import get_completion_class

    from killick.cli.app import COMPLETE_VARIABLE, PROGRAM, make_group

    found = get_completion_class(shell)
    assert found is not None
    script = found(make_group(), {}, PROGRAM, COMPLETE_VARIABLE).source()
    if frame.json:
        frame.out.json({"shell": shell, "script": script})
    else:
        frame.out.write(script)
