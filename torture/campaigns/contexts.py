"""Contexts of every prefix of journals that a store has really written, in four formats."""

import hashlib
import json
from typing import Any, Final

from killick.errors import BudgetTooSmall
from killick.journal.assembly import is_whole_object
from killick.journal.codec import encode
from killick.journal.kinds import HISTORY, lookup_class
from killick.model import entries as e
from killick.model.messages import Text, ToolCall
from killick.stores.memory import MemoryDisk
from killick.testing.players import Player
from killick.views import validators
from killick.views.budget import Budget
from killick.views.context import compute
from killick.views.formats.common import clean
from killick.views.profiles import PROFILES
from torture.campaign import Campaign, Round, Sizes
from torture.scripts import play

_STEPS: Final = 60
VALIDATORS: Final = {
    "openai-chat": validators.openai_chat,
    "openai-responses": validators.openai_responses,
    "anthropic": validators.anthropic,
    "gemini": validators.gemini,
}


def case(journal: list[e.Entry], name: str) -> None:
    """What one provider is sent of one prefix."""
    found = compute(journal, name, blobs=lambda blob: b"Be brief.")
    problems = VALIDATORS[name](found.messages, found.system)
    assert problems == [], (problems, found.messages)
    again = compute(journal, name, blobs=lambda blob: b"Be brief.")
    assert json.dumps(found.messages) == json.dumps(again.messages), "not the same bytes twice"
    assert len(found.origins) == len(found.messages)


def to_server(journal: list[e.Entry], name: str) -> None:
    """What the server is sent that a profile names, in each format that it speaks."""
    for format_ in PROFILES[name].formats:
        found = compute(journal, format_, blobs=lambda blob: b"Be brief.", profile=name)
        if format_ == "openai-chat":
            problems = validators.openai_chat_of(name, found.messages, found.system)
        else:
            problems = VALIDATORS[format_](found.messages, found.system)
        assert problems == [], (problems, found.messages)


def stays(journal: list[e.Entry], name: str) -> None:
    """What was sent stays as it was sent, but for what means to change it."""
    sent: list[Any] = []
    for place, entry in enumerate(journal):
        if lookup_class(entry.body) == HISTORY:
            sent = []
        elif isinstance(entry.body, e.ModelCallStarted):
            found = compute(journal[:place], name, blobs=lambda blob: b"Be brief.")
            now = blocks(name, found.messages)
            assert is_begun_with(sent, now), "what a model was sent is another now"
            sent = now


def blocks(name: str, messages: list[dict[str, Any]]) -> list[Any]:
    """The request as a cache sees it: block by block, each with its role."""
    if name in ("openai-chat", "openai-responses"):
        return list(messages)
    key = "content" if name == "anthropic" else "parts"
    return [(message["role"], block) for message in messages for block in message[key]]


def is_begun_with(sent: list[Any], now: list[Any]) -> bool:
    """Tell whether a request begins with what was sent: neighbouring user messages are one text."""
    if now[: len(sent)] == sent:
        return True
    *before, last = sent
    if now[: len(before)] != before or len(now) < len(sent) or not isinstance(last, dict):
        return False
    longer = now[len(before)]
    texts = [each.get("content") for each in (last, longer) if each.get("role") == "user"]
    match texts:
        case [str() as said, str() as more]:
            return more.startswith(f"{said}\n\n")
        case _:
            return False


def within(journal: list[e.Entry], name: str, budget: Budget) -> None:
    """A budget of any size: the provider's rules are kept, it holds, the prompt is there."""
    try:
        found = compute(journal, name, blobs=lambda blob: b"Be brief.", budget=budget)
    except BudgetTooSmall:
        needed = len(_asked_last(journal)) if name == "openai-responses" else 1
        fits = budget.messages is not None and budget.messages >= needed
        assert not fits, "the prompt fits into as many messages as it has"
        return
    problems = VALIDATORS[name](found.messages, found.system)
    assert problems == [], (problems, found.messages)
    sent = json.dumps(found.messages)
    assert budget.messages is None or len(found.messages) <= budget.messages
    assert budget.bytes is None or len(sent) <= budget.bytes
    if any(lookup_class(entry.body) == HISTORY for entry in journal):
        return
    for part in [part for prompt in _asked_last(journal) for part in prompt.parts]:
        if isinstance(part, Text) and part.text.strip():
            assert json.dumps(clean(part.text))[1:-1] in sent, "the running prompt is not sent"


def _asked_last(journal: list[e.Entry]) -> list[e.MessageRecorded]:
    """Return the prompts of the newest turn that has any: those that waited, and its own.

    What a person added after the turn's first answer is sent as any message: newest first.
    """
    asked: list[e.MessageRecorded] = []
    answered: set[str] = set()
    for entry in journal:
        match entry.body:
            case e.MessageStarted(turn_id=turn_id):
                answered.add(turn_id)
            case e.MessageRecorded(role="user", turn_id=turn_id) as body:
                if turn_id not in answered:
                    asked.append(body)
            case e.MessageRecorded(turn_id=turn_id):
                answered.add(turn_id)
            case _:
                pass
    return [body for body in asked if body.turn_id == asked[-1].turn_id]


def truth(journal: list[e.Entry]) -> None:
    """Endings are told once, results that are known are told, and text that was said is there."""
    if any(lookup_class(entry.body) == HISTORY for entry in journal):
        return  # those mean to change what is told
    sent = json.dumps(compute(journal, "neutral", blobs=lambda blob: b"").messages)
    told = sent.count("[The turn above ")
    bodies = [entry.body for entry in journal]
    broken = [x for x in bodies if isinstance(x, e.TurnEnding) and x.status != "completed"]
    # A turn that was only cut by forking was not interrupted for whoever reads the fork.
    assert told == len([body for body in broken if body.reason != "forked"])
    said = {body.id for body in bodies if isinstance(body, e.MessageRecorded | e.MessageEnded)}
    for body in bodies:
        if isinstance(body, e.ToolFinished | e.LateResult) and body.message_id in said:
            assert json.dumps(body.result.content)[1:-1] in sent, "a result is not told"
        if isinstance(body, e.MessageEnded | e.MessageRecorded):
            for part in body.parts:
                if isinstance(part, Text) and part.text.strip():
                    assert json.dumps(part.text)[1:-1] in sent, "what was said is not sent"
                if isinstance(part, ToolCall) and is_whole_object(part.arguments):
                    assert json.dumps(part.arguments)[1:-1] in sent, "a call is not sent"


def tools(journal: list[e.Entry]) -> None:
    """Every statement about a tool is what the journal knew when it was sent."""
    for name in VALIDATORS:
        false = validators.truth(journal, compute(journal, name, blobs=lambda blob: b""))
        assert false == [], (name, false)


def goes_on(player: Player) -> None:
    """Whatever has happened to it, a session whose processes are gone takes its next turn."""
    player.crash(0)
    player.crash(1)
    turn_id, repeated, status = player.step(0, "start_turn", "and now?", None, "refuse")
    assert (repeated, status) == (False, "running"), turn_id
    assert player.step(0, "end_turn", "normally") == "completed"


def run(round_: Round) -> None:
    """One journal: every prefix, every format. Reading has changed nothing in the store."""
    player = Player(MemoryDisk().open)
    try:
        history = round_.chance.random() < 0.6
        for _ in range(round_.chance.randrange(10, _STEPS)):
            play(player, round_.chance, history=history)
        journal = player.journal()
        before = _hash(journal)
        for end in range(len(journal) + 1):
            for name in VALIDATORS:
                round_.check(f"{name} of the first {end} entries", case, journal[:end], name)
        for name in VALIDATORS:
            few, many = round_.chance.randrange(1, 40), round_.chance.randrange(1, 3_000)
            for budget in (Budget(messages=few), Budget(tokens=many), Budget(bytes=many)):
                round_.check(f"{name} within {budget}", within, journal, name, budget)
            round_.check(f"{name} stays as it was sent", stays, journal, name)
        for name in PROFILES:
            round_.check(f"what {name} is sent", to_server, journal, name)
        round_.check("the truth is told", truth, journal)
        round_.check("the truth about each tool is told", tools, journal)
        player.contexts()
        if _hash(player.journal()) != before:
            round_.fail("reading", AssertionError("reading has changed the store"))
        round_.check("the next turn", goes_on, player)
    finally:
        player.close()


def _hash(journal: list[e.Entry]) -> str:
    return hashlib.sha256(b"\n".join(encode(entry) for entry in journal)).hexdigest()


CAMPAIGN = Campaign(
    name="contexts",
    tries="what a model would be sent of every prefix of generated journals, in four formats, and "
    "for every server that a profile names, and within budgets of every size",
    holds="the provider's rules are kept; the same bytes twice; what was sent stays; what was "
    "said, done and left open is told; budgets hold and keep the running prompt; the store is "
    "unchanged, and the session takes its next turn",
    sizes=Sizes(slice=4_000, torture=100_000, long=2_000_000),
    run=run,
)
