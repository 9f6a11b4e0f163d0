"""Sources of the newer formats, made as their agents write them: a bit of everything in each."""

import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

UUID = "4239187a-1eca-4612-9ab7-29bc5703d5da"
BEGUN = 1_767_225_600_000
"""2026 began, in milliseconds."""


def iso(second: int) -> str:
    return f"2026-01-01T00:{second // 60:02d}:{second % 60:02d}.123Z"


# -- JSON lines ------------------------------------------------------------------------------------


def qwen_lines() -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []

    def add(kind: str, parts: list[Any] | None = None, **more: Any) -> None:
        line: dict[str, Any] = {
            "uuid": f"q{len(lines)}", "parentUuid": f"q{len(lines) - 1}" if lines else None,
            "sessionId": UUID, "timestamp": iso(len(lines)), "type": kind, "cwd": "/w",
            "version": "0.15.10",
        }  # fmt: skip
        if parts is not None:
            role = "model" if kind == "assistant" else "user"
            line["message"] = {"role": role, "parts": parts}
        lines.append(line | more)

    def call(own: str, command: str) -> dict[str, Any]:
        args = {"command": command}
        return {"functionCall": {"id": own, "name": "run_shell_command", "args": args}}

    def response(own: str, text: str) -> list[Any]:
        body = {"id": own, "name": "run_shell_command", "response": {"output": text}}
        return [{"functionResponse": body}]

    used = {"promptTokenCount": 10, "candidatesTokenCount": 5}
    add("user", [{"text": "Fix the build."}])
    add("system", subtype="ui_telemetry", systemPayload={"uiEvent": {"model": "m"}})
    add("assistant", [{"text": "Let me think.", "thought": True}, {"text": "I look."},
                      call("c1", "make"), call("c2", "ls")],
        model="m", usageMetadata=used)  # fmt: skip
    add(
        "tool_result", response("c1", "Error 2"), toolCallResult={"callId": "c1", "status": "error"}
    )
    add("tool_result", response("c2", "Makefile"), toolCallResult={"status": "success"})
    add("assistant", [{"text": "The linker is missing."}], model="m", usageMetadata=used)
    add("user", [{"text": "Install it."}])
    add("assistant", [call("c3", "apt install ld")], model="m")
    add("user", [{"text": "Rather build it."}], parentUuid="q5")
    add("assistant", [{"text": "It is built."}], model="m")
    history = [{"role": "user", "parts": [{"text": "They built a linker."}]}]
    add("system", subtype="chat_compression", systemPayload={"compressedHistory": history})
    add("user", [{"text": "And the tests?"}])
    add("assistant", [call("c4", "make test")], model="m")
    return lines


def pi_lines() -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = [
        {"type": "session", "version": 3, "id": UUID, "timestamp": iso(0), "cwd": "/w"}
    ]

    def add(kind: str, message: Any = None, **more: Any) -> None:
        number = len(lines)
        line = {
            "type": kind, "id": f"p{number}", "timestamp": iso(number),
            "parentId": f"p{number - 1}" if number > 1 else None,
        }  # fmt: skip
        if message is not None:
            line["message"] = message
        lines.append(line | more)

    def says(*content: Any, stop: str = "stop", **more: Any) -> dict[str, Any]:
        usage = {"input": 10, "output": 5, "cacheRead": 3, "cost": {"total": 0.5}}
        return {
            "role": "assistant", "content": list(content), "provider": "p", "model": "m",
            "usage": usage, "stopReason": stop, **more,
        }  # fmt: skip

    def call(own: str, command: str) -> dict[str, Any]:
        return {"type": "toolCall", "id": own, "name": "bash", "arguments": {"command": command}}

    def text(words: str) -> dict[str, Any]:
        return {"type": "text", "text": words}

    def result(own: str, words: str, *, failed: bool = False) -> dict[str, Any]:
        content = [text(words)]
        return {"role": "toolResult", "toolCallId": own, "content": content, "isError": failed}

    add("model_change", provider="p", modelId="m")
    add("message", {"role": "user", "content": [text("Fix the build.")]})
    thought = {"type": "thinking", "thinking": "Let me think.", "thinkingSignature": "s" * 60}
    add("message", says(thought, text("I look."), call("c1", "make"), call("c2", "ls"),
                        stop="toolUse"))  # fmt: skip
    add("message", result("c1", "Error 2", failed=True))
    add("message", result("c2", "Makefile"))
    add("message", says(text("The linker is missing.")))
    add("message", {"role": "bashExecution", "command": "pwd", "output": "/w is here"})
    add("message", {"role": "user", "content": "Install it."})
    add("message", says(text("I instal"), stop="aborted", errorMessage="aborted"))
    add("message", {"role": "user", "content": "Rather build it."}, parentId="p6")
    add("message", says(text("It is built.")))
    add("compaction", summary="They built a linker.", firstKeptEntryId="p10")
    add("session_info", name="My build")
    add("message", {"role": "user", "content": "And the tests?"})
    add("message", says(call("c3", "make test"), stop="toolUse"))
    return lines


def copilot_lines() -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []

    def add(kind: str, **data: Any) -> None:
        number = len(lines)
        lines.append(
            {"type": kind, "data": data, "id": f"e{number}", "timestamp": iso(number),
             "parentId": f"e{number - 1}" if number else None}
        )  # fmt: skip

    def call(own: str, command: str) -> dict[str, Any]:
        return {"toolCallId": own, "name": "bash", "arguments": {"command": command}}

    add("session.start", sessionId=UUID, producer="copilot-agent", copilotVersion="1.0.102",
        startTime=iso(0), context={"cwd": "/w"})  # fmt: skip
    add("user.message", content="Fix the build.", transformedContent="now", messageId="m1")
    add("system.message", role="system", content="You are an assistant.")
    add("session.usage_record", usage={"inputTokens": 10, "outputTokens": 5})
    add("assistant.message", messageId="m2", model="m", content="I look.", apiCallId="a1",
        reasoningText="Let me think.",
        toolRequests=[call("c1", "make"), call("c2", "ls")])  # fmt: skip
    add("tool.execution_start", toolCallId="c1", toolName="bash")
    add("tool.execution_complete", toolCallId="c1", success=False, error={"message": "Error 2"})
    add("tool.execution_complete", toolCallId="c2", success=True, result={"content": "Makefile"})
    add("assistant.message", messageId="m3", model="m", content="The linker is missing.")
    add("user.message", content="Install it.", messageId="m4")
    add("assistant.message", messageId="m5", content="", toolRequests=[call("c3", "apt")])
    add("abort", reason="user initiated")
    add("session.compaction_complete", summaryContent="They looked for a linker.")
    add("session.title_changed", title="My build")
    add("user.message", content="And the tests?", messageId="m6")
    add("assistant.message", messageId="m7", content="They pass now.", toolRequests=[])
    add("session.shutdown", totalPremiumRequests=1)
    return lines


def gemini_messages() -> list[dict[str, Any]]:
    def response(own: str, text: str) -> list[Any]:
        return [{"functionResponse": {"id": own, "name": "shell", "response": {"output": text}}}]

    calls = [
        {"id": "c1", "name": "shell", "args": {"command": "make"}, "status": "error",
         "result": response("c1", "Error 2")},
        {"id": "c2", "name": "shell", "args": {"command": "ls"}, "status": "success",
         "result": response("c2", "Makefile")},
    ]  # fmt: skip
    again = [*response("c1", "Error 2"), *response("c2", "Makefile")]
    said: list[dict[str, Any]] = [
        {"type": "user", "content": [{"text": "<session_context>\nLinux\n</session_context>"}]},
        {"type": "user", "content": [{"text": "Fix the build."}]},
        {"type": "gemini", "content": "I look.", "model": "gemini-2.5-pro", "toolCalls": calls,
         "thoughts": [{"subject": "Plan", "description": "Let me think."}],
         "tokens": {"input": 10, "output": 5, "cached": 0, "thoughts": 1}},
        {"type": "user", "content": again},
        {"type": "gemini", "content": "The linker is missing.", "model": "gemini-2.5-pro"},
        {"type": "info", "content": "A new version is there."},
        {"type": "user", "content": "Install it."},
        {"type": "gemini", "content": "", "toolCalls": [
            {"id": "c3", "name": "shell", "args": {"command": "apt"}, "status": "executing"}]},
    ]  # fmt: skip
    return [{"id": f"g{n}", "timestamp": iso(n)} | one for n, one in enumerate(said)]


GEMINI = {"sessionId": UUID, "projectHash": "abc", "startTime": iso(0), "lastUpdated": iso(9)}


def gemini_lines() -> list[dict[str, Any]]:
    first, prompt, answer, *rest = gemini_messages()
    lines: list[dict[str, Any]] = [GEMINI | {"kind": "main"}, {"$set": {"messages": [first]}}]
    early = {name: value for name, value in answer.items() if name != "toolCalls"}
    lines += [prompt, {"$set": {"lastUpdated": iso(2)}}, early, answer, *rest]
    return [*lines, {"$set": {"summary": "My build"}}]


def codex_exec_lines() -> list[dict[str, Any]]:
    def item(step: str, own: str, kind: str, **more: Any) -> dict[str, Any]:
        return {"type": f"item.{step}", "item": {"id": own, "type": kind, **more}}

    def command(step: str, own: str, output: str, code: int | None) -> dict[str, Any]:
        return item(step, own, "command_execution", command="make", aggregated_output=output,
                    exit_code=code,
                    status="in_progress" if code is None else "completed")  # fmt: skip

    return [
        {"type": "thread.started", "thread_id": UUID},
        {"type": "turn.started"},
        item("completed", "i0", "reasoning", text="Let me think."),
        item("completed", "i1", "agent_message", text="I look."),
        command("started", "i2", "", None),
        command("completed", "i2", "Error 2", 2),
        item("completed", "i3", "file_change", changes=[{"path": "a", "kind": "add"}],
             status="completed"),
        item("completed", "i4", "agent_message", text="The linker is missing."),
        {"type": "turn.completed", "usage": {"input_tokens": 10, "output_tokens": 5}},
        {"type": "turn.started"},
        command("started", "i5", "", None),
        {"type": "turn.failed", "error": {"message": "stream disconnected"}},
    ]  # fmt: skip


def simple_lines() -> list[dict[str, Any]]:
    calls = [{"id": "c1", "name": "shell", "arguments": {"command": "make"}},
             {"id": "c2", "name": "shell", "arguments": '{"command": "ls"}'}]  # fmt: skip
    return [
        {"simple": 1, "id": "mine", "agent": "my-agent", "cwd": "/w", "at": iso(0)},
        {"role": "system", "text": "Be brief, please."},
        {"role": "user", "text": "Fix the build.", "at": iso(1)},
        {"role": "assistant", "thought": "Let me think.", "text": "I look.", "calls": calls,
         "model": "m", "provider": "p", "tokens": {"input": 10, "output": 5}},
        {"role": "tool", "call": "c1", "text": "Error 2", "error": True},
        {"role": "tool", "call": "c2", "text": "Makefile"},
        {"role": "assistant", "text": "The linker is missing."},
        {"role": "user", "text": "Install it."},
        {"role": "assistant", "text": "I instal", "partial": True},
        {"end": "interrupted", "reason": "Ctrl+C", "stopped": True},
        {"summary": "They looked for a linker."},
        {"title": "My build"},
        {"role": "user", "text": "And the tests?"},
        {"role": "assistant", "calls": [{"id": "c3", "name": "shell"}]},
    ]  # fmt: skip


LINES: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "qwen": (f"{UUID}.jsonl", qwen_lines()),
    "pi": ("2026-01-01_x.jsonl", pi_lines()),
    "copilot": ("events.jsonl", copilot_lines()),
    "gemini-lines": ("session-1.jsonl", gemini_lines()),
    "codex-exec": ("out.jsonl", codex_exec_lines()),
    "simple": ("mine.jsonl", simple_lines()),
}


# -- documents -------------------------------------------------------------------------------------


def gemini_document() -> dict[str, Any]:
    return GEMINI | {"messages": gemini_messages()}


def ui_rows() -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [
        {"type": "say", "say": "task", "text": "Fix the build."},
        {"type": "say", "say": "api_req_started",
         "text": json.dumps({"request": "…", "tokensIn": 10, "tokensOut": 5, "cost": 0.5})},
        {"type": "say", "say": "reasoning", "text": "Let me think."},
        {"type": "say", "say": "text", "text": "I look."},
        {"type": "ask", "ask": "command", "text": "make"},
        {"type": "say", "say": "command_output", "text": "Error 2"},
        {"type": "say", "say": "tool", "text": json.dumps({"tool": "readFile", "path": "a"})},
        {"type": "say", "say": "completion_result", "text": "The linker is missing."},
        {"type": "ask", "ask": "completion_result", "text": ""},
        {"type": "say", "say": "user_feedback", "text": "Install it."},
        {"type": "say", "say": "api_req_started",
         "text": json.dumps({"cancelReason": "user_cancelled"})},
    ]  # fmt: skip
    return [{"ts": BEGUN + number} | one for number, one in enumerate(said)]


# -- opencode --------------------------------------------------------------------------------------


def opencode_session() -> tuple[dict[str, Any], list[tuple[dict[str, Any], list[dict[str, Any]]]]]:
    """What is known of the session, and its messages with their parts."""
    about = {"id": "ses_1", "slug": "x", "directory": "/w", "title": "My build",
             "version": "1.18.33", "time": {"created": BEGUN, "updated": BEGUN + 9000}}  # fmt: skip

    def user(number: int, *parts: dict[str, Any]) -> Any:
        info = {"id": f"msg_{number}", "role": "user", "time": {"created": BEGUN + number * 1000}}
        return info, list(parts)

    def answer(number: int, *parts: dict[str, Any], **more: Any) -> Any:
        begun = BEGUN + number * 1000
        info = {
            "id": f"msg_{number}", "role": "assistant", "modelID": "m", "providerID": "p",
            "parentID": "msg_1", "finish": "stop", "cost": 0.5,
            "tokens": {"input": 10, "output": 5, "reasoning": 1, "cache": {"read": 3, "write": 0}},
            "time": {"created": begun, "completed": begun + 500},
        }  # fmt: skip
        return info | more, [{"type": "step-start"}, *parts, {"type": "step-finish"}]

    def text(words: str, **more: Any) -> dict[str, Any]:
        return {"type": "text", "text": words, **more}

    def tool(own: str, status: str, **state: Any) -> dict[str, Any]:
        state = {"status": status, "input": {"command": own}, **state}
        return {"type": "tool", "tool": "bash", "callID": own, "state": state}

    aborted = {"name": "MessageAbortedError", "data": {"message": "The operation was aborted."}}
    messages = [
        user(1, text("Fix the build."), text("A reminder.", synthetic=True)),
        answer(2, {"type": "reasoning", "text": "Let me think."}, text("I look."),
               tool("c1", "error", error="Error 2"), tool("c2", "completed", output="Makefile"),
               {"type": "patch", "files": ["a"]}, finish="tool-calls"),
        answer(3, text("The linker is missing.")),
        user(4, text("Install it.")),
        answer(5, text("I instal"), error=aborted),
        user(6, {"type": "compaction", "auto": True}),
        answer(7, text("They looked for a linker."), summary=True),
        user(8, text("And the tests?")),
        answer(9, tool("c3", "running"), time={"created": BEGUN + 9000}),
    ]  # fmt: skip
    return about, messages


def opencode_database(path: Path) -> Path:
    about, messages = opencode_session()
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA synchronous=OFF")
        made.execute(
            "CREATE TABLE session(id text PRIMARY KEY, parent_id text, slug text, directory text,"
            " title text, version text, revert text, time_created integer, time_updated integer)"
        )
        for table in ("message", "part"):
            more = "message_id text, " if table == "part" else ""
            made.execute(
                f"CREATE TABLE {table}(id text PRIMARY KEY, {more}session_id text,"
                " time_created integer, time_updated integer, data text)"
            )
        made.execute(
            "INSERT INTO session VALUES(?, NULL, ?, ?, ?, ?, NULL, ?, ?)",
            ("ses_1", "x", "/w", about["title"], about["version"], BEGUN, BEGUN + 9000),
        )
        for info, own, part in opencode_parts(messages):
            at, data = info["time"]["created"], {key: info[key] for key in info if key != "id"}
            if part is None:
                row = (info["id"], "ses_1", at, at, json.dumps(data))
                made.execute("INSERT INTO message VALUES(?, ?, ?, ?, ?)", row)
            else:
                values = (own, info["id"], "ses_1", at, at, json.dumps(part))
                made.execute("INSERT INTO part VALUES(?, ?, ?, ?, ?, ?)", values)
        made.commit()
    return path


def opencode_parts(messages: Any) -> Iterator[tuple[dict[str, Any], str, dict[str, Any] | None]]:
    """Each message, and behind it each of its parts with an id."""
    for info, parts in messages:
        yield info, info["id"], None
        for number, part in enumerate(parts):
            yield info, f"prt_{info['id'][4:]}_{number}", part


def opencode_storage(folder: Path) -> Path:
    about, messages = opencode_session()
    root = folder / "storage"

    def write(path: str, value: Any) -> None:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(json.dumps(value, indent=1))

    write("session/global/ses_1.json", about)
    for info, own, part in opencode_parts(messages):
        if part is None:
            write(f"message/ses_1/{own}.json", info)
        else:
            write(f"part/{info['id']}/{own}.json", part)
    return root


def opencode_export() -> dict[str, Any]:
    about, messages = opencode_session()
    return {"info": about, "messages": [{"info": info, "parts": parts} for info, parts in messages]}


# -- Crush -----------------------------------------------------------------------------------------


def crush_database(path: Path) -> Path:
    def part(kind: str, **data: Any) -> dict[str, Any]:
        return {"type": kind, "data": data}

    def call(own: str, **given: Any) -> dict[str, Any]:
        return part("tool_call", id=own, name="bash", input=json.dumps(given), finished=True)

    said: list[tuple[str, list[Any]]] = [
        ("user", [part("text", text="Fix the build.")]),
        ("assistant", [part("reasoning", thinking="Let me think.", signature=""),
                       part("text", text="I look."), call("c1", command="make"),
                       call("c2", command="ls"),
                       part("finish", reason="tool_use", time=1767225602)]),
        ("tool", [part("tool_result", tool_call_id="c1", content="Error 2", is_error=True),
                  part("tool_result", tool_call_id="c2", content="Makefile", is_error=False)]),
        ("assistant", [part("text", text="The linker is missing."),
                       part("finish", reason="end_turn", time=1767225604)]),
        ("assistant", [part("text", text="They looked for a linker."),
                       part("finish", reason="end_turn", time=1767225605)]),
        ("user", [part("text", text="Install it.")]),
        ("assistant", [part("text", text="I instal"), call("c3", command="apt"),
                       part("finish", reason="canceled", time=1767225607)]),
    ]  # fmt: skip
    with closing(sqlite3.connect(path)) as made:
        made.execute("PRAGMA synchronous=OFF")
        made.execute(
            "CREATE TABLE sessions(id text PRIMARY KEY, parent_session_id text, title text,"
            " message_count integer, prompt_tokens integer, completion_tokens integer, cost real,"
            " updated_at integer, created_at integer, summary_message_id text)"
        )
        made.execute(
            "CREATE TABLE messages(id text PRIMARY KEY, session_id text, role text, parts text,"
            " model text, provider text, created_at integer, updated_at integer,"
            " finished_at integer)"
        )
        made.execute("CREATE TABLE goose_db_version(id integer, version_id integer)")
        made.execute(
            "INSERT INTO sessions VALUES('s1', NULL, 'My build', 7, 10, 5, 0.5, 1767225609,"
            " 1767225600, 'm4')"
        )
        for number, (role, parts) in enumerate(said):
            at = 1767225600 + number
            row = (f"m{number}", "s1", role, json.dumps(parts), "m", "p", at, at, at)
            made.execute("INSERT INTO messages VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        made.commit()
    return path


# -- Markdown --------------------------------------------------------------------------------------

AIDER_BARE = """
# aider chat started at 2026-01-01 00:00:00

> Aider v0.86.2
> Main model: m-1 with diff edit format

#### /add main.py

> Added main.py to the chat

#### Fix the build.
#### And be quick.

The linker is missing.

```python
# a heading in code
```

> Tokens: 2.4k sent, 120 received. Cost: $0.01 message.
> Applied edit to main.py

#### /code install it

#### install it

I install the linker now.

> Tokens: 3k sent, 12 received.

#### And the tests?

> ^C KeyboardInterrupt

# aider chat started at 2026-01-02 00:00:00

> Aider v0.86.2

#### Once more, please.

It is done already.
"""
"""As an editor leaves it that takes away the spaces at the ends of lines."""

AIDER = re.sub(r"^((?:>|####) .*)$", r"\1  ", AIDER_BARE, flags=re.M)

SPECSTORY = """<!-- Generated by SpecStory, Markdown v2.1.0 -->

# Fix the build

<!-- Claude Code Session 4239187a-1eca-4612-9ab7-29bc5703d5da (2026-01-01 00:00:00Z) -->

_**User (2026-01-01 00:00:01Z)**_

Fix the build.

---

_**Agent (m-1 2026-01-01 00:00:02Z)**_

<think><details><summary>Thought Process</summary>
Let me think.</details></think>

I look.

<tool-use data-tool-type="shell" data-tool-name="Bash"><details>
<summary>Tool use: **Bash**</summary>

Run make

`make`

```text
Error 2
```
</details></tool-use>

The linker is missing.

---

_**Agent - sidechain (m-1 2026-01-01 00:00:03Z)**_

Words of a helper.

---

_**User (2026-01-01 00:00:04Z)**_

Install it.
"""
