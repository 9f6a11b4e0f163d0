"""A session as a person reads it, and as it would be sent."""

import contextlib
import json

import pytest

from killick import Store
from tests.cli.running import Runner
from tests.cli.sample import Sample

FORMATS = ["openai-chat", "openai-responses", "anthropic", "gemini", "neutral"]


def test_a_transcript_has_everything_that_was_said_and_done(
    killick: Runner, sample: Sample
) -> None:
    text = killick("show", sample.build).out
    for said in ("Fix the build", "Why does the build fail?", "(thinking) The log will say."):
        assert said in text
    assert '> shell {"command": "make"}  [failed]' in text
    assert "> apt {}  [unknown]" in text
    assert "unpacking" in text
    assert "-- interrupted at " in text
    assert ": keyboard_interrupt --" in text


def test_a_long_result_is_cut_unless_all_is_asked_for(killick: Runner, sample: Sample) -> None:
    assert "line 30" not in killick("show", sample.build).out
    assert "--all shows them" in killick("show", sample.build).out
    assert "line 30" in killick("show", sample.build, "--all").out


def test_a_partial_message_is_marked(killick: Runner, sample: Sample) -> None:
    with Store(sample.path) as store:
        session = store.session(sample.empty)
        with (
            contextlib.suppress(KeyboardInterrupt),
            session.turn("Go") as turn,
            turn.stream() as reply,
        ):
            reply.text("Once upon")
            raise KeyboardInterrupt
    assert "[cut off here: a partial message]" in killick("show", sample.empty).out


@pytest.mark.parametrize("option", ["--all", "--open"])
def test_a_compaction_is_a_fold_that_can_be_opened(
    killick: Runner, sample: Sample, option: str
) -> None:
    head = killick("compact", sample.build, "--through", "12", "--summary", "It was the linker.")
    assert head.code == 0, head.err
    folded = killick("show", sample.build).out
    assert "3 messages folded into a summary" in folded
    assert "It was the linker." in folded
    assert "Let me look." not in folded
    opened = killick("show", sample.build, option).out
    assert "It was the linker." in opened
    assert "Let me look." in opened


def test_what_is_hidden_is_not_shown(killick: Runner, sample: Sample) -> None:
    seq = killick("show", sample.build, "--json").json["transcript"][0]["seq"]
    assert killick("hide", sample.build, str(seq)).code == 0
    assert "Why does the build fail?" not in killick("show", sample.build).out
    assert killick("unhide", sample.build, str(seq)).code == 0
    assert "Why does the build fail?" in killick("show", sample.build).out


def test_what_is_hidden_from_models_is_still_shown(killick: Runner, sample: Sample) -> None:
    seq = killick("show", sample.build, "--json").json["transcript"][0]["seq"]
    assert killick("hide", sample.build, str(seq), "--from", "model").code == 0
    assert "Why does the build fail?" in killick("show", sample.build).out
    assert "Why does the build fail?" not in killick("context", sample.build).out


def test_a_timeline_has_turns_model_calls_attempts_tools_and_tokens(
    killick: Runner, sample: Sample
) -> None:
    text = killick("show", sample.build, "--timeline").out
    assert "turn 1  completed" in text
    assert "turn 2  interrupted (keyboard_interrupt)" in text
    assert "acme/small  attempt 2" in text
    assert "1,200 in, 34 out, cost 0.2500" in text
    assert "tool   shell" in text
    assert "tool   apt  no result" in text


def test_the_last_things_can_be_asked_for(killick: Runner, sample: Sample) -> None:
    value = killick("show", sample.build, "--last", "1", "--json").json
    assert [one["kind"] for one in value["transcript"]] == ["ending"]


def test_json_has_the_session_its_transcript_and_its_turns(killick: Runner, sample: Sample) -> None:
    value = killick("show", sample.build, "--timeline", "--json").json
    assert value["id"] == sample.build
    assert value["status"] == "interrupted"
    kinds = [one["kind"] for one in value["transcript"]]
    assert kinds == ["message", "message", "message", "message", "message", "ending"]
    assert value["transcript"][1]["tools"][0]["state"] == "failed"
    assert value["turns"][0]["usage"] == {"input": 1200, "output": 34, "cost": 0.25}
    assert value["damage"] == []


@pytest.mark.parametrize("name", FORMATS)
def test_a_context_is_json_in_every_format(killick: Runner, sample: Sample, name: str) -> None:
    printed = json.loads(killick("context", sample.build, "--format", name).out)
    value = killick("context", sample.build, "--format", name, "--json").json
    with Store(sample.path) as store:
        context = store.session(sample.build).context(name)  # type: ignore[arg-type]
    messages = json.loads(json.dumps(context.messages))
    assert printed == {"system": context.system, "messages": messages}
    assert (value["format"], value["messages"]) == (name, messages)


def test_repairs_are_explained(killick: Runner, sample: Sample) -> None:
    done = killick("context", sample.build, "--format", "openai-chat", "--repairs")
    value = killick("context", sample.build, "--format", "openai-chat", "--json").json
    assert len(done.lines) == len(value["repairs"]) > 0
    first = value["repairs"][0]
    assert done.lines[0].split("\t") == [str(first["seq"]), first["action"], first["reason"]]


def test_a_context_can_be_cut_to_a_budget(killick: Runner, sample: Sample) -> None:
    whole = killick("context", sample.build, "--json").json["messages"]
    cut = killick("context", sample.build, "--max-messages", "2", "--json").json["messages"]
    assert len(cut) < len(whole)
    shape = ("context", sample.build, "--format", "openai-chat", "--json")
    small = killick(*shape, "--max-bytes", "900").json["messages"]
    assert len(json.dumps(small)) <= 900
    assert killick(*shape, "--max-bytes", "5").code != 0


def test_a_context_is_made_for_one_server(killick: Runner, sample: Sample) -> None:
    shape = ("context", sample.build, "--format", "openai-chat", "--json")
    messages = killick(*shape, "--profile", "mistral").json["messages"]
    ids = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert ids
    assert {len(call_id) for call_id in ids} == {9}
    refused = killick(*shape, "--profile", "bedrock")
    assert refused.code == 2
    assert "deepseek, kimi" in refused.err


def test_a_session_without_a_word_can_be_shown(killick: Runner, sample: Sample) -> None:
    done = killick("show", sample.empty)
    assert (done.code, done.lines[:2]) == (0, ["Nothing yet", sample.empty])
    assert killick("show", sample.empty, "--timeline").code == 0
    assert killick("context", sample.empty).code == 0
    assert killick("tail", sample.empty, "--until-end").code == 0
