"""What must be true of every session that came in."""

import base64

from killick import Message, Store
from killick.model.messages import Image, Text, ToolCall
from killick.views import validators

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

VALIDATORS = {
    "openai-chat": validators.openai_chat,
    "openai-responses": validators.openai_responses,
    "anthropic": validators.anthropic,
    "gemini": validators.gemini,
}


def check_sound(store: Store) -> None:
    """Every journal keeps the rules, what is derived agrees, every provider takes its context."""
    for session_id in store.session_ids():
        assert store.examine_session(session_id) == []
        session = store.session(session_id)
        for name, validate in VALIDATORS.items():
            context = session.context(name)  # type: ignore[arg-type]
            broken = validate(context.messages, context.system)
            assert broken == [], (session_id, name, broken, context.messages)
        session.transcript()
        session.timeline()


def converse(store: Store, session_id: str = "ses_1") -> str:
    """A session with a bit of everything."""
    session = store.create_session(id=session_id, title="Fix the build", tags=("a", "b"))
    blob = store.put_blob(PNG)
    with session.turn([Text("Why does it fail?\u2028\ud800"), Image(blob, "image/png")]) as turn:
        with turn.stream(model="m-1", provider="p", system="Be brief.") as reply:
            reply.reasoning("The log says…")
            reply.text("Let me look.\n")
            reply.tool_call("call_1", name="shell", arguments='{"command": "make"}')
        with turn.tool("call_1") as call:
            call.output("compiling…\n")
            call.finish("make: *** [all] Error 2", is_error=True)
        turn.record(Message("assistant", [Text("The linker is missing.")]))
    session.note("mark", {"x": [1, 2.5, None]})
    try:
        with session.turn("And now?") as turn, turn.stream() as reply:
            reply.text("It is ")
            reply.tool_call("call_1", name="shell", arguments="{}")
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    session.compact("They looked for the linker.", through=session.messages()[2].seq)
    with session.turn("Once more.") as turn:
        turn.record(Message("assistant", [ToolCall("c2", "look", "{}")]))
    session.finish_tool(session.turns()[-1].id, "c2", "found")
    session.rename("Another title")
    return session.id
