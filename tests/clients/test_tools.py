"""Tools of the chat API: calls are typed, streams give the same calls, results lead to the answer."""

import json

import openai
import pytest
from pocket import ADD, CALLS, NO_THINKING, NOW, chat_tools, expected_call, run_tool

QUESTION = [{"role": "user", "content": "Please add 6997 and 6578."}]
TOOLS = chat_tools(ADD, NOW)


def ask(client, *, messages=QUESTION, tools=TOOLS, **more):
    return client.chat.completions.create(
        model="pocket", messages=messages, tools=tools, temperature=0, extra_body=NO_THINKING, **more
    )


def streamed_calls(stream):
    """The calls of a stream, put together as clients do, and its finish reason."""
    calls, reason = {}, None
    for chunk in stream:
        for part in chunk.choices[0].delta.tool_calls or []:
            call = calls.setdefault(part.index, {"id": part.id, "name": "", "arguments": ""})
            call["name"] += part.function.name or ""
            call["arguments"] += part.function.arguments or ""
        reason = chunk.choices[0].finish_reason or reason
    return [calls[index] for index in sorted(calls)], reason


@pytest.mark.parametrize("task", CALLS, ids=lambda task: task.name)
def test_calls_are_typed_by_the_schema(client, task):
    tools = chat_tools(*map(json.loads, task.tools))
    choice = ask(client, messages=task.messages, tools=tools).choices[0]
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert call.type == "function"
    assert call.id
    assert (call.function.name, json.loads(call.function.arguments)) == expected_call(task)


def test_a_stream_gives_the_same_calls(client):
    for task in CALLS[:6]:
        tools = chat_tools(*map(json.loads, task.tools))
        calls, reason = streamed_calls(ask(client, messages=task.messages, tools=tools, stream=True))
        assert reason == "tool_calls"
        assert len(calls) == 1
        assert calls[0]["id"]
        assert (calls[0]["name"], json.loads(calls[0]["arguments"])) == expected_call(task)


def test_a_loop_from_the_question_to_the_answer(client):
    messages, used = list(QUESTION), []
    for _ in range(4):
        choice = ask(client, messages=messages).choices[0]
        messages.append(choice.message)  # the client's own object goes back as it came
        if choice.finish_reason != "tool_calls":
            break
        for call in choice.message.tool_calls:
            used.append(call.function.name)
            result = run_tool(call.function.name, json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    assert used == ["add"]
    assert choice.finish_reason == "stop"
    assert "13575" in choice.message.content


def test_a_streamed_loop(client):
    calls, _ = streamed_calls(ask(client, stream=True))
    assistant = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": call["id"],
                "type": "function",
                "function": {"name": call["name"], "arguments": call["arguments"]},
            }
            for call in calls
        ],
    }
    result = run_tool(calls[0]["name"], json.loads(calls[0]["arguments"]))
    messages = [*QUESTION, assistant, {"role": "tool", "tool_call_id": calls[0]["id"], "content": result}]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in ask(client, messages=messages, stream=True))
    assert "13575" in text


def test_none_forbids_calls(client):
    message = ask(client, tool_choice="none", max_tokens=60).choices[0].message
    assert message.tool_calls is None


@pytest.mark.parametrize("question", ["Please add 6997 and 6578.", "Define lantern."])
def test_required_always_calls(client, question):
    choice = ask(client, messages=[{"role": "user", "content": question}], tool_choice="required", max_tokens=200).choices[0]
    assert choice.finish_reason == "tool_calls"
    for call in choice.message.tool_calls:
        check_call(call)


@pytest.mark.parametrize("name", ["add", "now"])
def test_a_named_tool_is_called(client, name):
    choice = ask(client, tool_choice={"type": "function", "function": {"name": name}}, max_tokens=200).choices[0]
    # OpenAI ends with "stop" when the tool was named, others with "tool_calls".
    assert choice.finish_reason in ("stop", "tool_calls")
    assert {call.function.name for call in choice.message.tool_calls} == {name}
    for call in choice.message.tool_calls:
        check_call(call)
    calls, _ = streamed_calls(
        ask(client, tool_choice={"type": "function", "function": {"name": name}}, max_tokens=200, stream=True)
    )
    assert {call["name"] for call in calls} == {name}


def check_call(call):
    """The arguments fit the tool's schema."""
    arguments = json.loads(call.function.arguments)
    if call.function.name == "add":
        assert set(arguments) == {"a", "b"}
        assert all(type(value) is int for value in arguments.values())
    else:
        assert call.function.name == "now"
        assert isinstance(arguments, dict)


def test_without_parallel_calls_there_is_one(client):
    for choice in ("auto", "required"):
        message = ask(client, parallel_tool_calls=False, tool_choice=choice, max_tokens=200).choices[0].message
        assert len(message.tool_calls) == 1


def test_thinking_and_a_forced_call(client):
    choice = client.chat.completions.create(
        model="pocket", messages=QUESTION, tools=TOOLS, tool_choice="required", temperature=0, max_tokens=300
    ).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.reasoning_content
    check_call(choice.message.tool_calls[0])


def test_a_tool_that_is_not_there_is_refused(client):
    with pytest.raises(openai.BadRequestError) as error:
        ask(client, tool_choice={"type": "function", "function": {"name": "subtract"}})
    assert "subtract" in error.value.message
    with pytest.raises(openai.BadRequestError):
        ask(client, tools=openai.omit, tool_choice="required")
