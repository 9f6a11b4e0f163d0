"""Options before the command's name: they mean what they mean after it, so they are put there.

`killick --model NAME serve` is `killick serve --model NAME`. Whether a word is the value of an
option or the name of a command is known by the options of the command that it would name.
"""

from collections.abc import Callable, Sequence

import click


def name_first(words: Sequence[str], find: Callable[[str], click.Command | None]) -> list[str]:
    """The same line, begun with the command's name; as it is where nothing stands before one.

    The name is the first word that names a command which has all the options that stand before it.
    """
    for place, word in enumerate(words):
        command = None if word.startswith("-") else find(word)
        if command is not None and _has_all(command, words[:place]):
            return [word, *words[:place], *words[place + 1 :]]
    return list(words)


def _has_all(command: click.Command, words: Sequence[str]) -> bool:
    """Whether these words are options of the command, each with the values that it takes."""
    values = {
        name: 0 if option.is_flag or option.count else option.nargs
        for option in command.params
        if isinstance(option, click.Option)
        for name in (*option.opts, *option.secondary_opts)
    }
    place = 0
    while place < len(words):
        name, given, _ = words[place].partition("=")
        if name not in values:
            return False
        place += 1 if given else 1 + values[name]
    return place == len(words)
