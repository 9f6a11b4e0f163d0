"""The commands of a chat: what begins with a slash."""

import shutil
import textwrap
from difflib import get_close_matches
from pathlib import Path
from typing import Final, NamedTuple

import anyio.to_thread

from killick.cli.chat.talk import RunCommand, Talk
from killick.cli.chat.view import ViewedMessage
from killick.exchange.export import EXPORTS, prepare_export
from killick.model import entries as e
from killick.model.sessions import TurnInfo
from killick.session.sync import Store

_SUFFIXES: Final = {"killick": ".jsonl", "markdown": ".md", "html": ".html", "hermes": ".db"}


_LISTED: Final = 15

_HELP_COLUMNS: Final = 20
"""Columns that a command's help has at least, on the narrowest terminal."""


class Slash(NamedTuple):
    """A command, with its help in one line. `idle` ones wait until no turn runs.

    `takes` is what may stand after its name.
    """

    help: str
    run: RunCommand
    idle: bool = True
    takes: str = ""


async def run_command(talk: Talk, text: str) -> None:
    """Run one; an unknown one changes nothing."""
    name, rest = text[1:].strip(), ""
    if " " in name:
        name, rest = name.split(maxsplit=1)
    slash = COMMANDS.get(name)
    if slash is None:
        near = get_close_matches(name, COMMANDS, 1)
        hint = f" Did you mean /{near[0]}?" if near else " /help lists them."
        await talk.say("warning", f"There is no /{name}.{hint}")
    elif rest and not slash.takes:
        await talk.say("warning", f"/{name} takes nothing after it. Nothing was done.")
    elif slash.idle and talk.busy:
        await talk.say("warning", f"/{name} has to wait: a turn runs. Ctrl+C stops it.")
    else:
        await slash.run(talk, rest.strip())


async def _help(talk: Talk, _: str) -> None:
    names = {f"/{name} {slash.takes}": slash.help for name, slash in COMMANDS.items()}
    names["Ctrl+C"] = "stop the turn; twice within two seconds: leave. Ctrl+D leaves too."
    indent = max(map(len, names)) + 2
    columns = max(shutil.get_terminal_size().columns, indent + _HELP_COLUMNS)
    lines = [
        textwrap.fill(f"{name:<{indent}}{text}", columns, subsequent_indent=" " * indent)
        for name, text in names.items()
    ]
    await talk.say("note", "\n".join(lines))


async def _compact(talk: Talk, _: str) -> None:
    await talk.say("note", "The model is asked for a summary; Ctrl+C stops it.")
    if not await talk.agent.compact(talk.session):
        await talk.say("note", "There is nothing to summarise.")


async def _rewind(talk: Talk, rest: str) -> None:
    turns = await _visible(talk)
    count = int(rest or 1) if rest.isdecimal() or not rest else 0
    if not count:
        await talk.say("warning", f"How many turns? {rest!r} is no number of them.")
        return
    if not turns:
        await talk.say("note", "There is no turn to take back.")
        return
    await talk.session.rewind(turns[max(len(turns) - count, 0)].seq - 1)


async def _steer(talk: Talk, rest: str) -> None:
    if not rest:
        await talk.say("warning", "Say what: /steer also check the tests")
        return
    steered = await talk.session.steer(rest)
    if steered.queued:
        await talk.say("note", "No turn runs: it goes with your next prompt.")
    else:
        await talk.say("note", "The agent takes it before it asks the model again.")


async def _fork(talk: Talk, _: str) -> None:
    forked = await talk.session.fork()
    await talk.open(forked)
    await talk.say("note", f"You are in a fork now: {forked.id}")


async def _retry(talk: Talk, _: str) -> None:
    """Ask again. An answer without effects goes out of view first; what tools did stays in it."""
    turns = await _visible(talk)
    if not turns:
        await talk.say("note", "There is nothing to ask again.")
        return
    last = turns[-1]
    entries = await talk.session.entries(after=last.seq - 1)
    ran = any(isinstance(entry.body, e.ToolStarted) for entry in entries)
    prompts = [
        entry
        for entry in entries
        if isinstance(entry.body, e.MessageRecorded)
        and entry.body.role == "user"
        and entry.body.turn_id == last.id
    ]
    if ran or not prompts:
        talk.begin("Try again.", retry_of=last.id)
    else:
        await talk.session.rewind(prompts[-1].seq)
        talk.begin(None, retry_of=last.id)


async def _continue(talk: Talk, _: str) -> None:
    turns = await _visible(talk)
    if not turns:
        await talk.say("note", "There is nothing to go on with.")
        return
    talk.begin(None, continues=turns[-1].id)


async def _title(talk: Talk, rest: str) -> None:
    if rest:
        await talk.session.rename(rest)
    else:
        await talk.say("note", (await talk.session.info()).title or "(no title)")


async def _context(talk: Talk, _: str) -> None:
    """Show the context of the model in short, with its repairs."""
    context = await talk.session.context("neutral")
    lines = []
    for message in context.messages:
        texts = [part.get("text") or part.get("name") or part["type"] for part in message["parts"]]
        text = " ".join(" ".join(texts).split())
        made = " (made up)" if message["synthetic"] and message["role"] == "tool" else ""
        lines.append(f"{message['role']:>9}{made}  {text[:100]}")
    lines += [
        f"repaired  #{repair.seq}: {repair.action}, {repair.reason}" for repair in context.repairs
    ]
    await talk.say("note", "\n".join(lines) or "(nothing)")


async def _export(talk: Talk, rest: str) -> None:
    words = rest.split(maxsplit=1)
    to = words[0] if words else "markdown"
    if to not in EXPORTS:
        await talk.say("warning", f"No format {to!r}: it is one of {', '.join(EXPORTS)}.")
        return
    name = words[1] if len(words) > 1 else talk.session.id + _SUFFIXES.get(to, ".json")
    size, losses = await anyio.to_thread.run_sync(_write, talk.url, talk.session.id, to, Path(name))
    for loss in losses:
        await talk.say("warning", f"Not in it: {loss}")
    await talk.say("note", f"{name}: {size:,} bytes")


def _write(url: str | None, session_id: str, to: str, path: Path) -> tuple[int, list[str]]:
    """All of it, in a file that was not there before. If interrupted: no file, or all of it."""
    with Store(url) as store, path.open("xb") as file:
        try:
            export = prepare_export(store, session_id, to)
            return sum(file.write(piece) for piece in export.pieces), export.losses
        except BaseException:
            path.unlink()  # half of a session looks like a whole one
            raise


async def _sessions(talk: Talk, rest: str) -> None:
    """List the newest sessions, or go on with one of them."""
    if rest:
        await talk.open(await talk.store.session(await talk.store.resolve_id(rest)))
        return
    infos = await talk.store.sessions(type="user", limit=_LISTED)
    openings = await talk.store.openings([info.id for info in infos if info.title is None])
    lines = [
        f"{info.id}  {info.updated_at.astimezone():%Y-%m-%d %H:%M}  "
        + (info.title or openings.get(info.id) or "(no title)")
        + ("  (this one)" if info.id == talk.session.id else "")
        for info in infos
        if info.status is not None or info.id == talk.session.id
    ]
    await talk.say("note", "\n".join([*lines, "/sessions ID goes on with one of them."]))


async def _search(talk: Talk, rest: str) -> None:
    if not rest:
        await talk.say("warning", "Search for what? /search WORDS")
        return
    hits = await talk.store.search(rest, limit=_LISTED)
    lines = [f"{hit.session_id}  #{hit.seq}  {hit.role}: {hit.snippet}" for hit in hits]
    if hits.behind:
        lines.append(f"{hits.behind:,} entries are not indexed yet.")
    await talk.say("note", "\n".join(lines) or f"No message has {rest!r}.")


async def _leave(talk: Talk, _: str) -> None:
    talk.leave()


async def _wait(talk: Talk, _: str) -> None:
    await talk.resend(if_busy="wait")


async def _take_over(talk: Talk, _: str) -> None:
    await talk.resend(if_busy="take_over")


async def _visible(talk: Talk) -> list[TurnInfo]:
    """Turns that no rewind has taken out of view."""
    shown = {message.turn_id for message in await talk.session.messages()}
    return [turn for turn in await talk.session.turns() if turn.id in shown]


async def _show_queue(talk: Talk, _: str) -> None:
    pieces = [ViewedMessage("prompt", prompt.text) for prompt in talk.view.queued.values()]
    await talk.screen.show(*(pieces or [ViewedMessage("note", "No prompt waits.")]))


COMMANDS: Final[dict[str, Slash]] = {
    "compact": Slash("put a summary in place of what was said so far", _compact),
    "rewind": Slash("take the last turn, or the last N, out of view", _rewind, takes="[N]"),
    "fork": Slash("go on in a copy; this session stays as it is", _fork),
    "retry": Slash("ask the last prompt again", _retry),
    "continue": Slash("go on with a turn that was interrupted", _continue),
    "title": Slash("give the session a title, or show it", _title, idle=False, takes="[TEXT]"),
    "context": Slash("what the model would be sent now", _context, idle=False),
    "export": Slash("write the session to a file", _export, idle=False, takes="[FORMAT [FILE]]"),
    "steer": Slash("say something to the turn that runs", _steer, idle=False, takes="TEXT"),
    "queue": Slash("show the prompts that wait", _show_queue, idle=False),
    "wait": Slash("send what is typed when the other's turn is over", _wait, idle=False),
    "takeover": Slash("end the turn that runs elsewhere, and send", _take_over, idle=False),
    "sessions": Slash("list sessions, or go on with one", _sessions, takes="[ID]"),
    "search": Slash("find messages of all sessions", _search, idle=False, takes="WORDS"),
    "help": Slash("this list", _help, idle=False),
    "quit": Slash("leave; everything is kept", _leave, idle=False),
    "exit": Slash("as /quit", _leave, idle=False),
}
