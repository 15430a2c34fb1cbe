"""responses of the official OpenAI client."""

import json
from typing import Literal

import openai
import pydantic
import pytest
from pocket import ADD, LANTERN, LANTERN_THOUGHT, NOW, run_tool

PLAIN = {"effort": "none"}
TOOLS = [{"type": "function", "strict": False, **function} for function in (ADD, NOW)]


def ask(client, *, input="Define lantern.", reasoning=PLAIN, **more):
    return client.responses.create(model="pocket", input=input, reasoning=reasoning, temperature=0, **more)


def test_known_answer(client):
    response = ask(client)
    assert response.status == "completed"
    assert response.output_text == LANTERN
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert response.error is None


def test_items_instructions_and_a_second_turn(client):
    first = ask(client, input=[{"role": "user", "content": [{"type": "input_text", "text": "Define lantern."}]}])
    assert first.output_text == LANTERN
    history = [{"role": "user", "content": "Define lantern."}, *first.output]
    second = ask(client, input=[*history, {"role": "user", "content": "Define thermometry."}])
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens - 1
    assert second.output_text
    told = ask(client, instructions="You are a dictionary.")
    assert told.instructions == "You are a dictionary."
    assert told.usage.input_tokens > first.usage.input_tokens


def test_reasoning_is_an_item_of_its_own(client):
    response = ask(client, reasoning=openai.omit)
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert response.output[0].content[0].text == LANTERN_THOUGHT
    assert response.output_text == LANTERN


def test_stream(client):
    events = list(ask(client, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[0].type == "response.created"
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == LANTERN
    assert events[-1].type == "response.completed"
    final = events[-1].response
    assert final.output_text == LANTERN
    assert final.usage.output_tokens == ask(client).usage.output_tokens


def test_the_clients_own_stream_helper(client):
    with client.responses.stream(
        model="pocket", input="Define lantern.", temperature=0, reasoning=PLAIN
    ) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == LANTERN


def test_a_loop_from_the_question_to_the_answer(client):
    items = [{"role": "user", "content": "Please add 6997 and 6578."}]
    response = ask(client, input=items, tools=TOOLS)
    calls = [item for item in response.output if item.type == "function_call"]
    assert [call.name for call in calls] == ["add"]
    assert json.loads(calls[0].arguments) == {"a": 6997, "b": 6578}
    result = run_tool("add", json.loads(calls[0].arguments))
    items += [*response.output, {"type": "function_call_output", "call_id": calls[0].call_id, "output": result}]
    assert "13575" in ask(client, input=items, tools=TOOLS).output_text


def test_a_streamed_call(client):
    items = [{"role": "user", "content": "Please add 6997 and 6578."}]
    arguments, done = "", None
    for event in ask(client, input=items, tools=TOOLS, stream=True):
        if event.type == "response.function_call_arguments.delta":
            arguments += event.delta
        if event.type == "response.function_call_arguments.done":
            done = event.arguments
    assert json.loads(arguments) == {"a": 6997, "b": 6578}
    assert done == arguments


def test_length(client):
    response = ask(client, max_output_tokens=2)
    assert response.status == "incomplete"
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage.output_tokens == 2


class Entry(pydantic.BaseModel):
    kind: Literal["noun", "verb"]
    common: bool


def test_parse_into_a_pydantic_model(client):
    response = client.responses.parse(
        model="pocket",
        input="Define lantern.",
        text_format=Entry,
        temperature=0,
        reasoning=PLAIN,
        max_output_tokens=200,
    )
    assert isinstance(response.output_parsed, Entry)
    assert json.loads(response.output_text) == response.output_parsed.model_dump()


def test_what_needs_a_memory_is_refused(client):
    with pytest.raises(openai.BadRequestError) as error:
        ask(client, previous_response_id="resp_1")
    assert error.value.param == "previous_response_id"
