"""Record one turn of an agent, then read it back."""

from killick import Store

with Store("work.db") as store:
    session = store.create_session(title="Fix the build")
    with session.turn("Why does the build fail?") as turn:  # the prompt is durable here
        with turn.stream() as reply:  # one call to a model, and its answer as it comes
            reply.text("Let me look.")  # durable within 50 ms
            reply.tool_call("call_1", name="shell", arguments='{"command": "make"}')
        with turn.tool("call_1") as call:  # the start is durable before the tool runs
            call.finish("ld: not found", is_error=True)  # durable on return
        with turn.stream() as reply:
            reply.text("The linker is missing.")

    for message in session.messages():
        print(message.role, message.state, message.parts)
    print(session.turns()[0].status)
