"""The interface that outside programs call, over real HTTP."""

from urllib.parse import quote

import pytest

from killick import Store
from tests.server.client import Server, texts
from tests.server.conftest import Serve


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_session_is_created_listed_and_read(server: Server) -> None:
    session_id = server.create(title="Fix the build")
    [listed] = server.get("/api/sessions", params={"q": "Fix the build"})["sessions"]
    assert (listed["id"], listed["title"]) == (session_id, "Fix the build")
    detail = server.get(f"/api/sessions/{session_id}")
    assert (detail["id"], detail["title"], detail["head"]) == (session_id, "Fix the build", 1)
    assert (detail["session"]["id"], detail["turn"]) == (session_id, None)


def test_an_id_of_any_letters_has_an_address(server: Server) -> None:
    """Ids of other agents are kept: one with a slash, or with what stands for one."""
    ids = ["team/7", "team%2F7", "a b?c#d", "\u00e4/\u2028", "nul\0", "%", "%ff"]
    with Store(server.store) as store:
        for session_id in ids:
            store.create_session(id=session_id, title=session_id.partition("\0")[0])
    for session_id in ids:
        address = quote(session_id, safe="")
        server.begin(address, "count 1")
        server.until_end(address)
        assert server.get(f"/api/sessions/{address}")["id"] == session_id
        messages = server.get(f"/api/sessions/{address}/messages", params={"after": 0})["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant"]
        assert server.stop(address).status_code == 409
        assert server.http.get(f"/s/{address}").status_code == 200


def test_a_turn_runs_to_its_end_and_its_messages_are_there(server: Server) -> None:
    session_id = server.create()
    turn_id = server.begin(session_id, "count 5")
    events = server.until_end(session_id)
    assert events[-1].data["body"] == {
        "kind": "turn_ended",
        "turn_id": turn_id,
        "status": "completed",
    }
    messages = server.get(f"/api/sessions/{session_id}/messages")["messages"]
    assert [(one["role"], one["state"], one["text"]) for one in messages] == [
        ("user", "complete", "count 5"),
        ("assistant", "complete", "w0 w1 w2 w3 w4 "),
    ]


def test_a_context_has_a_profile_and_limits(server: Server) -> None:
    session_id = server.create()
    server.begin(session_id, "count 5")
    server.until_end(session_id)
    path = f"/api/sessions/{session_id}/context"
    whole = server.get(path, params={"profile": "mistral", "max_bytes": 10_000})
    small = server.get(path, params={"max_messages": 1})
    assert [len(whole["messages"]), len(small["messages"])] == [2, 1]
    for wrong, code in (
        ({"profile": "bedrock"}, "invalid_query"),
        ({"max_tokens": 1}, "budget_too_small"),
    ):
        answer = server.http.get(path, params=wrong)
        assert (answer.status_code, answer.json()["code"]) == (400, code)


def test_the_same_key_again_is_the_same_turn_and_runs_once(server: Server) -> None:
    session_id = server.create()
    first = server.ask(session_id, "count 3", key="k1")
    again = server.ask(session_id, "count 3", key="k1")
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["turn_id"] == again.json()["turn_id"]
    server.until_end(session_id)
    later = server.ask(session_id, "count 3", key="k1")
    assert (later.status_code, later.json()["status"]) == (200, "completed")
    assert len(server.get(f"/api/sessions/{session_id}/messages")["messages"]) == 2


def test_the_same_key_with_another_prompt_is_a_conflict(server: Server) -> None:
    session_id = server.create()
    server.begin(session_id, "count 3", key="k1")
    answer = server.ask(session_id, "count 4", key="k1")
    assert (answer.status_code, answer.json()["code"]) == (409, "id_conflict")


def test_a_busy_session_refuses_and_names_the_holder(server: Server) -> None:
    session_id = server.create()
    turn_id = server.begin(session_id, "hang")
    answer = server.ask(session_id, "count 1")
    failure = answer.json()
    assert (answer.status_code, failure["code"]) == (409, "session_busy")
    assert failure["turn_id"] == turn_id
    assert str(server.process.pid) in failure["holder"]


def test_a_busy_session_keeps_a_prompt_and_takes_it_next(server: Server) -> None:
    session_id = server.create()
    server.begin(session_id, "count 30 0.01")
    kept = server.ask(session_id, "say then", if_busy="queue")
    assert kept.status_code == 202
    queued = server.get(f"/api/sessions/{session_id}")["queued"]
    assert [(one["id"], one["text"]) for one in queued] == [(kept.json()["prompt_id"], "say then")]
    first = server.until_end(session_id)
    server.until_end(session_id, first[-1].id)
    messages = server.get(f"/api/sessions/{session_id}/messages")["messages"]
    assert [one["text"] for one in messages[2:]] == ["say then", "then"]


def test_a_stop_holds_the_queue(server: Server) -> None:
    session_id = server.create()
    server.begin(session_id, "hang")
    server.ask(session_id, "say then", if_busy="queue")
    server.stop(session_id, wait_seconds=5)
    assert len(server.get(f"/api/sessions/{session_id}")["queued"]) == 1
    server.begin(session_id, None)
    assert server.get(f"/api/sessions/{session_id}")["queued"] == []


def test_a_prompt_that_waits_is_withdrawn(server: Server) -> None:
    session_id = server.create()
    server.begin(session_id, "hang")
    gone, kept = (
        server.ask(session_id, text, if_busy="queue").json()["prompt_id"]
        for text in ("say gone", "say kept")
    )
    path = f"/api/sessions/{session_id}/queue/{gone}"
    done = server.http.delete(path)
    assert (done.status_code, server.http.delete(path).json()) == (200, done.json())
    assert [one["id"] for one in server.get(f"/api/sessions/{session_id}")["queued"]] == [kept]
    server.stop(session_id, wait_seconds=5)
    server.begin(session_id, None)
    server.until_end(session_id, str(done.json()["seq"] + 5))
    messages = server.get(f"/api/sessions/{session_id}/messages")["messages"]
    assert "say gone" not in [one["text"] for one in messages]
    missing = server.http.delete(f"/api/sessions/{session_id}/queue/{kept}")
    assert (missing.status_code, missing.json()["code"]) == (404, "message_not_found")


def test_a_session_without_a_title_is_known_by_how_it_begins(server: Server) -> None:
    session_id = server.create()
    path = f"/api/sessions/{session_id}"
    assert server.get(path)["session"]["opening"] is None
    server.begin(session_id, "hang   on,\nthen " + "x" * 500)
    server.stop(session_id, wait_seconds=5)
    opening = server.get(path)["session"]["opening"]
    assert opening == ("hang on, then " + "x" * 500)[:120]
    listed = server.get("/api/sessions")["sessions"]
    assert [one["opening"] for one in listed if one["id"] == session_id] == [opening]
    server.http.patch(path, json={"title": "Named"})
    assert server.get(path)["session"]["opening"] is None


def test_a_busy_session_is_waited_for(server: Server) -> None:
    session_id = server.create()
    first = server.begin(session_id, "count 10 0.01")
    second = server.begin(session_id, "say after", if_busy="wait")
    assert first != second
    assert server.get(f"/api/sessions/{session_id}")["turn"]["id"] == second


def test_waiting_ends_when_its_time_is_over(server: Server) -> None:
    session_id = server.create()
    server.begin(session_id, "hang")
    answer = server.ask(session_id, "say after", if_busy="wait", wait_seconds=0.1)
    assert (answer.status_code, answer.json()["code"]) == (409, "session_busy")


def test_a_busy_session_is_interrupted(server: Server) -> None:
    session_id = server.create()
    server.begin(session_id, "hang")
    server.begin(session_id, "say after", if_busy="interrupt")
    transcript = server.get(f"/api/sessions/{session_id}/transcript")
    assert transcript["turns"][0]["reason"] == "interrupted by the next turn"


def test_stop_ends_the_turn_and_keeps_what_was_said(server: Server) -> None:
    session_id = server.create()
    turn_id = server.begin(session_id, "hang")
    stopped = server.stop(session_id, turn_id=turn_id, reason="enough", wait_seconds=5)
    assert (stopped.status_code, stopped.json()) == (
        202,
        {"turn_id": turn_id, "status": "interrupted", "reason": "enough", "cause": "stopped"},
    )
    messages = server.get(f"/api/sessions/{session_id}/messages")["messages"]
    assert (messages[1]["state"], messages[1]["text"]) == ("partial", "I wait ")


def test_stop_when_nothing_runs_is_a_conflict(server: Server) -> None:
    session_id = server.create()
    answer = server.stop(session_id)
    assert (answer.status_code, answer.json()["code"]) == (409, "not_running")


def test_stop_of_a_turn_that_completed_says_who_won(server: Server) -> None:
    session_id = server.create()
    turn_id = server.begin(session_id, "count 1")
    server.until_end(session_id)
    answer = server.stop(session_id, turn_id=turn_id)
    failure = answer.json()
    assert (answer.status_code, failure["status"]) == (409, "completed")
    assert failure["turn_id"] == turn_id


def test_a_stop_names_the_turn_it_means(server: Server) -> None:
    session_id = server.create()
    first = server.begin(session_id, "count 1")
    server.until_end(session_id)
    server.begin(session_id, "hang")
    assert server.stop(session_id, turn_id=first).status_code == 409
    assert server.get(f"/api/sessions/{session_id}")["turn"]["status"] == "running"
    missing = server.stop(session_id, turn_id="turn_none")
    assert (missing.status_code, missing.json()["code"]) == (404, "turn_not_found")


def test_messages_after_a_seq_are_those_that_changed(server: Server) -> None:
    session_id = server.create()
    server.begin(session_id, "count 1")
    server.until_end(session_id)
    head = server.get(f"/api/sessions/{session_id}/messages")["head"]
    path = f"/api/sessions/{session_id}/messages"
    assert server.get(path, params={"after": head})["messages"] == []
    server.begin(session_id, "say more")
    server.until_end(session_id, str(head))
    changed = server.get(path, params={"after": head})["messages"]
    assert [one["text"] for one in changed] == ["say more", "more"]


def test_a_turn_that_breaks_has_failed_and_tells_no_secret(server: Server) -> None:
    session_id = server.create()
    server.begin(session_id, "fail")
    ending = server.until_end(session_id)[-1].data["body"]
    assert ending["status"] == "failed"
    assert "swordfish" not in server.log
    [broke] = [one for one in server.log_lines("turn_broke") if one["session"] == session_id]
    assert broke["error"] == "RuntimeError"


def test_a_search_finds_what_was_said(server: Server) -> None:
    session_id = server.create(title="Words")
    server.begin(session_id, "say xylophone")
    server.until_end(session_id)
    hits = server.get("/api/search", params={"q": "xylophone"})["hits"]
    assert {hit["session_id"] for hit in hits} == {session_id}
    assert "xylophone" not in server.log


def test_approvals_are_decided_over_http(server: Server) -> None:
    session_id = server.create()
    server.begin(session_id, "ask")
    events = server.events(session_id)
    asked = next(event for event in events if event.name == "approval_asked")
    events.close()
    [waiting] = server.get(f"/api/sessions/{session_id}")["approvals"]
    assert waiting["id"] == asked.data["body"]["id"]
    assert waiting["arguments"] == '{"command": "rm -r build"}'
    path = f"/api/sessions/{session_id}/approvals/{waiting['id']}"
    decision = {"approved": False, "arguments_hash": waiting["arguments_hash"]}
    assert server.http.post(path, json=decision).status_code == 200
    server.until_end(session_id)
    [_, answer] = server.get(f"/api/sessions/{session_id}/transcript")["shown"]
    assert answer["tools"][0]["result"]["content"] == "denied"
    assert server.http.post(path, json=decision | {"approved": True}).status_code == 404


def asked_in(server: Server, session_id: str, prompt: str = "ask") -> dict[str, str]:
    """The one question that this prompt leads to."""
    server.begin(session_id, prompt)
    events = server.events(session_id)
    turn = server.get(f"/api/sessions/{session_id}")["turn"]["id"]
    next(
        event
        for event in events
        if event.name == "approval_asked" and event.data["body"]["turn_id"] == turn
    )
    events.close()
    waiting: list[dict[str, str]] = server.get(f"/api/sessions/{session_id}")["approvals"]
    return waiting[0]


def test_always_lets_the_same_call_run_unasked_until_it_is_taken_back(server: Server) -> None:
    """The server decides by itself: no page is open."""
    session_id = server.create()
    path = f"/api/sessions/{session_id}"
    waiting = asked_in(server, session_id)
    decision = {"approved": True, "always": True, "arguments_hash": waiting["arguments_hash"]}
    refused = server.http.post(
        f"{path}/approvals/{waiting['id']}", json=decision | {"approved": False}
    )
    assert refused.status_code == 422
    assert server.http.post(f"{path}/approvals/{waiting['id']}", json=decision).status_code == 200
    after = server.until_end(session_id)[-1].id
    server.begin(session_id, "ask")
    events = server.until_end(session_id, after)
    decided = [event.data["body"] for event in events if event.name == "approval_decided"]
    assert [(one["approved"], one["by"]) for one in decided] == [(True, "always")]
    [allowed] = server.get(f"{path}/allowed")["allowed"]
    assert (allowed["tool"], allowed["arguments"]) == ("shell", '{"command": "rm -r build"}')
    named = {"tool": "shell", "arguments_hash": allowed["arguments_hash"]}
    assert server.http.post(f"{path}/ask-again", json=named).status_code == 200
    assert server.http.post(f"{path}/ask-again", json=named).status_code == 404
    assert server.get(f"{path}/allowed") == {"allowed": []}
    assert asked_in(server, session_id)["arguments_hash"] == allowed["arguments_hash"]


def test_a_question_names_its_tool_however_much_was_said_since(server: Server) -> None:
    """A person who allows a call knows which tool would run."""
    session_id = server.create()
    server.begin(session_id, 'ask "{}" 60')
    events = server.events(session_id)
    next(event for event in events if event.name == "approval_asked")
    events.close()
    waiting = server.get("/api/waiting")["waiting"]
    [line] = [line for line in waiting if line["session"]["id"] == session_id]
    assert (line["kind"], line["tool"]) == ("approval_asked", "shell")


@pytest.mark.parametrize(("sent", "code"), [({}, 422), ({"arguments_hash": "b2:other"}, 409)])
def test_a_decision_about_other_arguments_decides_nothing(
    server: Server, sent: dict[str, str], code: int
) -> None:
    session_id = server.create()
    server.begin(session_id, "ask")
    events = server.events(session_id)
    next(event for event in events if event.name == "approval_asked")
    events.close()
    [waiting] = server.get(f"/api/sessions/{session_id}")["approvals"]
    path = f"/api/sessions/{session_id}/approvals/{waiting['id']}"
    assert server.http.post(path, json={"approved": True, **sent}).status_code == code
    assert server.get(f"/api/sessions/{session_id}")["approvals"] == [waiting]


def test_fork_rewind_and_undo(server: Server) -> None:
    session_id = server.create()
    server.begin(session_id, "say one")
    head = server.until_end(session_id)[-1].data["seq"]
    path = f"/api/sessions/{session_id}"
    server.begin(session_id, "hang")
    assert server.http.post(f"{path}/rewind", json={"through": head}).status_code == 409
    server.stop(session_id, wait_seconds=5)
    forked = server.http.post(f"{path}/fork", json={"at": head, "title": "Other"})
    assert forked.status_code == 201
    assert server.http.post(f"{path}/rewind", json={"through": head}).status_code == 200
    transcript = server.get(f"{path}/transcript")
    assert [one["parts"][0]["text"] for one in transcript["shown"]] == ["say one", "one"]
    assert transcript["undoable"] is not None
    assert server.http.post(f"{path}/undo").status_code == 200
    kinds = [one["kind"] for one in server.get(f"{path}/transcript")["shown"]]
    assert kinds == ["message", "message", "message", "message", "ending"]
    fork = server.get(f"/api/sessions/{forked.json()['id']}/messages")["messages"]
    assert [one["text"] for one in fork] == ["say one", "one"]


def test_what_is_asked_wrongly_is_refused_with_a_code_and_a_sentence(server: Server) -> None:
    session_id = server.create()
    post, get = server.http.post, server.http.get
    for answer, status, code in (
        (get("/api/sessions/none"), 404, "session_not_found"),
        (get("/api/sessions", params={"limit": "0"}), 400, "invalid_request"),
        (get("/api/sessions", params={"colour": "red"}), 400, "invalid_request"),
        (get("/api/search", params={"q": "NOT"}), 400, "invalid_query"),
        (post("/api/sessions", json={"title": 5}), 400, "invalid_request"),
        (post("/api/sessions", content=b"{"), 415, "not_json"),
        (post("/api/sessions", json={"titel": "x"}), 400, "invalid_request"),
        (post(f"/api/sessions/{session_id}/turns", json={"if_busy": "x"}), 400, "invalid_request"),
        (get(f"/api/sessions/{session_id}/events?after=x"), 400, "invalid_cursor"),
        (get("/nothing"), 404, "not_found"),
        (server.http.put("/api/sessions"), 405, "method_not_allowed"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
        assert answer.json()["message"].endswith(".")


@pytest.mark.parametrize(
    "body",
    [b'{"title": "\xff"}', b'{"project": ' + b'{"a": ' * 100_000 + b"1" + b"}" * 100_001],
    ids=["not-utf-8", "deep"],
)
def test_a_body_that_cannot_be_read_is_the_clients_fault(server: Server, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = server.http.post("/api/sessions", content=body, headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request"), answer.text


def test_the_description_names_every_path_of_the_contract(server: Server) -> None:
    paths = server.get("/openapi.json")["paths"]
    one = "/api/sessions/{session_id}"
    assert {
        "/api/sessions", one, f"{one}/messages", f"{one}/turns", f"{one}/stop", f"{one}/events",
        "/api/search",
    } <= set(paths)  # fmt: skip


def test_no_answer_is_kept_by_a_browser(server: Server) -> None:
    session_id = server.create()
    server.http.delete(f"/api/sessions/{session_id}")
    for path in (f"/api/sessions/{session_id}", "/api/sessions", "/nothing"):
        assert server.http.get(path).headers["cache-control"] == "no-store"


def test_a_session_lives_on_after_the_server(serve: Serve) -> None:
    first = serve()
    session_id = first.create()
    first.begin(session_id, "count 3")
    seen = first.until_end(session_id)
    assert first.end() == 0
    second = serve()
    assert [one.id for one in second.until_end(session_id)][-1] == seen[-1].id
    assert list(texts(seen).values()) == ["w0 w1 w2 "] or not texts(seen)
