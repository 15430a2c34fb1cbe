"""The official Anthropic client."""

import json

import anthropic
import jsonschema
import pytest
from conftest import KEY
from pocket import ADD, LANTERN, LANTERN_THOUGHT, NOW, run_tool

MESSAGES = [{"role": "user", "content": "Define lantern."}]
QUESTION = [{"role": "user", "content": "Please add 6997 and 6578."}]
OFF = {"type": "disabled"}
ON = {"type": "enabled", "budget_tokens": 1024}
TOOLS = [
    {"name": tool["name"], "description": tool["description"], "input_schema": tool["parameters"]} for tool in (ADD, NOW)
]
GREEDY = {"temperature": 0}


def ask(claude, *, messages=MESSAGES, thinking=OFF, max_tokens=1500, **more):
    return claude.messages.create(
        model="pocket",
        messages=messages,
        thinking=thinking,
        max_tokens=max_tokens,
        extra_body=GREEDY,
        **more,
    )


def test_known_answer(claude):
    message = ask(claude)
    assert (message.type, message.role, message.model) == ("message", "assistant", "pocket")
    assert [block.type for block in message.content] == ["text"]
    assert message.content[0].text == LANTERN
    assert message.stop_reason == "end_turn"
    assert message.usage.input_tokens > 0
    assert message.usage.output_tokens > 5


def test_system_and_text_blocks(claude):
    block = [{"role": "user", "content": [{"type": "text", "text": "Define lantern."}]}]
    plain = ask(claude, messages=block)
    assert plain.content[0].text == LANTERN
    told = ask(claude, system="You are a dictionary.")
    assert told.usage.input_tokens + told.usage.cache_read_input_tokens > (
        plain.usage.input_tokens + plain.usage.cache_read_input_tokens
    )


def test_stop_sequences_and_length(claude):
    stopped = ask(claude, stop_sequences=[" protective"])
    assert stopped.content[0].text == "light in a transparent"
    assert (stopped.stop_reason, stopped.stop_sequence) == ("stop_sequence", " protective")
    cut = ask(claude, max_tokens=2)
    assert cut.stop_reason == "max_tokens"
    assert cut.usage.output_tokens == 2


def test_stream_joins_to_the_whole(claude):
    with claude.messages.stream(
        model="pocket", messages=MESSAGES, thinking=OFF, max_tokens=100, extra_body=GREEDY
    ) as stream:
        parts = list(stream.text_stream)
        final = stream.get_final_message()
    assert "".join(parts) == LANTERN
    assert len(parts) > 3
    assert final.content[0].text == LANTERN
    assert final.stop_reason == "end_turn"
    whole = ask(claude)
    assert final.usage.output_tokens == whole.usage.output_tokens


def test_raw_events_come_in_order(claude):
    types = [event.type for event in ask(claude, stream=True)]
    assert types[:2] == ["message_start", "content_block_start"]
    assert types[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(types[2:-3]) <= {"content_block_delta", "ping"}


def test_thinking_is_a_block_of_its_own(claude):
    message = ask(claude, thinking=ON)
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[0].thinking == LANTERN_THOUGHT
    assert message.content[1].text == LANTERN
    thought, text = "", ""
    for event in ask(claude, thinking=ON, stream=True):
        if event.type == "content_block_delta":
            if event.delta.type == "thinking_delta":
                assert text == ""
                thought += event.delta.thinking
            elif event.delta.type == "text_delta":
                text += event.delta.text
    assert (thought, text) == (LANTERN_THOUGHT, LANTERN)


@pytest.mark.parametrize("thinking", [OFF, ON], ids=["plain", "thinking"])
def test_a_loop_from_the_question_to_the_answer(claude, thinking):
    messages, used = list(QUESTION), []
    for _ in range(4):
        message = ask(claude, messages=messages, tools=TOOLS, thinking=thinking)
        messages.append({"role": "assistant", "content": message.content})
        if message.stop_reason != "tool_use":
            break
        results = []
        for block in message.content:
            if block.type == "tool_use":
                used.append((block.name, block.input))
                results.append(
                    {"type": "tool_result", "tool_use_id": block.id, "content": run_tool(block.name, block.input)}
                )
        messages.append({"role": "user", "content": results})
    assert used == [("add", {"a": 6997, "b": 6578})]
    assert message.stop_reason == "end_turn"
    assert "13575" in message.content[-1].text


def test_a_streamed_call(claude):
    with claude.messages.stream(
        model="pocket", messages=QUESTION, tools=TOOLS, thinking=OFF, max_tokens=100, extra_body=GREEDY
    ) as stream:
        json_text = "".join(event.partial_json for event in stream if event.type == "input_json")
        final = stream.get_final_message()
    assert json.loads(json_text) == {"a": 6997, "b": 6578}
    assert final.stop_reason == "tool_use"
    assert final.content[-1].input == {"a": 6997, "b": 6578}


@pytest.mark.parametrize(
    ("choice", "names"),
    [({"type": "any"}, {"add", "now"}), ({"type": "tool", "name": "now"}, {"now"})],
    ids=["any", "named"],
)
def test_a_call_can_be_forced(claude, choice, names):
    message = ask(claude, tools=TOOLS, tool_choice={**choice, "disable_parallel_tool_use": True}, max_tokens=200)
    uses = [block for block in message.content if block.type == "tool_use"]
    assert len(uses) == 1
    assert uses[0].name in names
    assert message.stop_reason == "tool_use"


def test_a_call_to_what_is_not_there_is_refused(claude):
    with pytest.raises(anthropic.BadRequestError) as error:
        ask(claude, tools=TOOLS, tool_choice={"type": "tool", "name": "subtract"})
    assert "tool" in error.value.body["error"]["message"]


SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["noun", "verb"]}, "common": {"type": "boolean"}},
    "required": ["kind", "common"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("thinking", [OFF, ON], ids=["plain", "thinking"])
def test_structured_output(claude, thinking):
    message = ask(claude, thinking=thinking, output_config={"format": {"type": "json_schema", "schema": SCHEMA}})
    jsonschema.validate(json.loads(message.content[-1].text), SCHEMA)
    assert [block.type for block in message.content] == (["text"] if thinking is OFF else ["thinking", "text"])


def test_an_output_format_that_is_not_known_is_refused(claude):
    with pytest.raises(anthropic.BadRequestError) as error:
        ask(claude, output_config={"format": {"type": "yaml"}})
    assert "output_config.format" in error.value.body["error"]["message"]


def test_no_call_when_forbidden(claude):
    message = ask(claude, messages=QUESTION, tools=TOOLS, tool_choice={"type": "none"}, max_tokens=60)
    assert all(block.type == "text" for block in message.content)


def test_errors_are_the_clients_own(claude, server):
    with pytest.raises(anthropic.NotFoundError) as missing:
        claude.messages.create(model="other", messages=MESSAGES, max_tokens=5)
    assert missing.value.body["error"]["type"] == "not_found_error"
    with pytest.raises(anthropic.BadRequestError) as bad:
        ask(claude, messages=[])
    assert bad.value.body["error"]["type"] == "invalid_request_error"
    assert "messages" in bad.value.body["error"]["message"]
    with pytest.raises(anthropic.BadRequestError) as long:
        ask(claude, messages=[{"role": "user", "content": "lantern " * 3000}], max_tokens=5)
    assert "2048" in long.value.body["error"]["message"]
    with anthropic.Anthropic(base_url=server.url, api_key=KEY + "x", max_retries=0) as stranger:
        with pytest.raises(anthropic.AuthenticationError) as unknown:
            ask(stranger)
        assert unknown.value.body["error"]["type"] == "authentication_error"
