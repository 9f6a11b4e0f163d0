"""What a model would be sent."""

import json
from typing import Any, cast

import click

from killick.cli.frame import Frame, command, open_session
from killick.cli.layout import Column
from killick.cli.printing import block, plain
from killick.cli.safety import clean_json
from killick.cli.shapes import context_shape
from killick.cli.types import session_argument
from killick.views.context import FORMATS, Format
from killick.views.neutral import Partial

_REPAIRS = (Column("SEQ", right=True), Column("DONE"), Column("WHY", flexible=True))


@command(
    ("killick context ID --format anthropic", "what would be sent to Anthropic now"),
    ("killick context ID --format openai-chat --repairs", "what was repaired in it, and why"),
    ("killick context ID --format gemini --max-tokens 4000", "the newest that fit"),
)
@click.option(
    "--format",
    "format_",
    type=click.Choice(list(FORMATS)),
    default="neutral",
    show_default=True,
    help="Whose shape it has.",
)
@click.option("--repairs", is_flag=True, help="List what was repaired instead, and why.")
@click.option("--max-messages", type=click.IntRange(min=1), help="The newest N messages.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="The newest that fit, roughly.")
@click.option(
    "--partial",
    type=click.Choice(["note", "plain", "omit"]),
    default="note",
    show_default=True,
    help="What becomes of an answer that was cut off.",
)
@click.option("--no-reasoning", is_flag=True, help="Leave reasoning out.")
@session_argument
def context(
    frame: Frame, session_id: str, format_: str, *, repairs: bool, no_reasoning: bool, **rest: Any
) -> None:
    """Print what a model would be sent now.

    It is repaired, and in one provider's shape. The messages and the system prompt are JSON
    either way; --json prints them in one line, together with the repairs and the seqs that each
    message comes from.
    """
    with frame.open() as store:
        session = open_session(store, session_id)
        computed = session.context(
            cast("Format", format_),
            max_messages=rest["max_messages"],
            max_tokens=rest["max_tokens"],
            partial=cast("Partial", rest["partial"]),
            reasoning=not no_reasoning,
        )
    if frame.json:
        frame.out.json(context_shape(computed))
    elif repairs:
        rows = [(str(one.seq), one.action, one.reason) for one in computed.repairs]
        frame.out.table(_REPAIRS, rows)
        if not rows:
            frame.note("nothing had to be repaired")
    else:
        value = {"system": computed.system, "messages": plain(computed.messages)}
        text = json.dumps(value, indent=2, ensure_ascii=False)
        frame.out.lines(block(clean_json(text)))
