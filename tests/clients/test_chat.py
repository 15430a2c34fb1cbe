"""chat.completions of the official OpenAI client."""

import math

import pytest
from pocket import LANTERN, LANTERN_THOUGHT, NO_THINKING, QUESTIONS

MESSAGES = [{"role": "user", "content": "Define lantern."}]


def ask(client, *, messages=MESSAGES, temperature=0, extra_body=NO_THINKING, **more):
    return client.chat.completions.create(
        model="pocket", messages=messages, temperature=temperature, extra_body=extra_body, **more
    )


def test_known_answer(client):
    answer = ask(client)
    assert answer.object == "chat.completion"
    assert answer.model == "pocket"
    assert len(answer.choices) == 1
    choice = answer.choices[0]
    assert choice.message.role == "assistant"
    assert choice.message.content == LANTERN
    assert choice.message.tool_calls is None
    assert choice.finish_reason == "stop"
    assert getattr(choice.message, "reasoning_content", None) is None


@pytest.mark.parametrize("group", ["define", "needle 10 lines", "needle 40 lines", "needle 80 lines"])
def test_every_kind_of_question(client, group):
    for task in [task for task in QUESTIONS if task.group == group][:5]:
        answer = ask(client, messages=task.messages)
        assert answer.choices[0].message.content == task.expected, task.name
        assert answer.choices[0].finish_reason == "stop"


def test_text_parts_are_lines(client):
    def said(content):
        return ask(client, messages=[{"role": "user", "content": content}]).choices[0].message.content

    assert said([{"type": "text", "text": "Define lantern."}]) == LANTERN
    codes, question = QUESTIONS[-1].user.rsplit("\n", 1)
    parts = [{"type": "text", "text": codes}, {"type": "text", "text": question}]
    assert said(parts) == QUESTIONS[-1].expected


def test_a_system_message_reaches_the_prompt(client, server):
    messages = [{"role": "system", "content": "You are a dictionary."}, *MESSAGES]
    prompt = server.ask("/apply-template", {"messages": messages, **NO_THINKING})[1]
    assert "You are a dictionary." in prompt
    assert ask(client, messages=messages).usage.prompt_tokens > ask(client).usage.prompt_tokens


def test_usage_counts_tokens(client, server):
    answer = ask(client)
    usage = answer.usage
    prompt = server.ask("/tokenize", {"messages": MESSAGES, **NO_THINKING})[1]
    text = server.ask("/tokenize", {"prompt": LANTERN, "add_special_tokens": False})[1]
    assert f'"count":{usage.prompt_tokens}' in prompt.replace(" ", "")
    assert f'"count":{usage.completion_tokens - 1}' in text.replace(" ", "")  # and the token that ends the answer
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_a_repeated_prompt_is_cached(client, server):
    server.ask("/flush_cache", method="POST")
    long_task = next(task for task in QUESTIONS if task.group == "needle 80 lines")
    first = ask(client, messages=long_task.messages)
    again = ask(client, messages=long_task.messages)
    assert first.usage.prompt_tokens_details.cached_tokens == 0
    assert again.usage.prompt_tokens_details.cached_tokens > 0.9 * again.usage.prompt_tokens
    assert first.choices[0].message.content == again.choices[0].message.content == long_task.expected


def test_stream_joins_to_the_whole(client):
    whole = ask(client)
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    *deltas, last = chunks
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert all(chunk.object == "chat.completion.chunk" for chunk in chunks)
    assert deltas[0].choices[0].delta.role == "assistant"
    texts = [chunk.choices[0].delta.content or "" for chunk in deltas]
    assert "".join(texts) == whole.choices[0].message.content == LANTERN
    assert sum(bool(text) for text in texts) > 3, "the answer came in pieces"
    reasons = [chunk.choices[0].finish_reason for chunk in deltas]
    assert reasons[-1] == "stop"
    assert set(reasons[:-1]) == {None}
    assert last.choices == []
    assert last.usage.prompt_tokens == whole.usage.prompt_tokens
    assert last.usage.completion_tokens == whole.usage.completion_tokens
    assert all(chunk.usage is None for chunk in deltas)


def test_stream_without_usage_has_none(client):
    assert all(chunk.choices and chunk.usage is None for chunk in ask(client, stream=True))


def test_the_clients_own_stream_helper(client):
    with client.chat.completions.stream(
        model="pocket", messages=MESSAGES, temperature=0, extra_body=NO_THINKING
    ) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion()
    assert text == final.choices[0].message.content == LANTERN
    assert final.choices[0].finish_reason == "stop"


def test_reasoning_comes_apart(client):
    whole = ask(client, extra_body=None).choices[0].message
    assert whole.reasoning_content == LANTERN_THOUGHT
    assert whole.content == LANTERN
    reasoning, content, order = "", "", []
    for chunk in ask(client, extra_body=None, stream=True):
        delta = chunk.choices[0].delta
        for kind in ("reasoning_content", "content"):
            if getattr(delta, kind, None):
                order.append(kind)
        reasoning += getattr(delta, "reasoning_content", None) or ""
        content += delta.content or ""
    assert (reasoning, content) == (LANTERN_THOUGHT, LANTERN)
    assert order == sorted(order, reverse=True), "all reasoning stands before the answer"
    hidden = ask(client, extra_body={"include_reasoning": False}).choices[0].message
    assert hidden.content == LANTERN
    assert getattr(hidden, "reasoning_content", None) is None


def test_reasoning_effort_none_turns_thinking_off(client):
    message = ask(client, extra_body=None, reasoning_effort="none").choices[0].message
    assert message.content == LANTERN
    assert getattr(message, "reasoning_content", None) is None


def test_logprobs(client):
    answer = ask(client, logprobs=True, top_logprobs=3).choices[0]
    tokens = answer.logprobs.content
    assert b"".join(bytes(token.bytes) for token in tokens).decode() == LANTERN
    for token in tokens:
        assert -1 < token.logprob <= 0, "the model is sure of what it has learnt"
        assert len(token.top_logprobs) == 3
        values = [top.logprob for top in token.top_logprobs]
        assert values == sorted(values, reverse=True)
        assert len({bytes(top.bytes) for top in token.top_logprobs}) == 3
        # Greedy: what was taken is the likeliest.
        assert token.top_logprobs[0].token == token.token
        assert token.top_logprobs[0].logprob == token.logprob
        assert sum(math.exp(value) for value in values) <= 1 + 1e-5
    plain = ask(client, logprobs=True).choices[0].logprobs.content
    assert [token.logprob for token in plain] == pytest.approx([token.logprob for token in tokens], abs=1e-3)
    assert all(token.top_logprobs == [] for token in plain)
    assert ask(client).choices[0].logprobs is None


def test_logprobs_in_a_stream_are_those_of_the_whole(client):
    whole = ask(client, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    streamed = []
    for chunk in ask(client, logprobs=True, top_logprobs=2, stream=True):
        if chunk.choices[0].logprobs:
            streamed += chunk.choices[0].logprobs.content
    assert [token.token for token in streamed] == [token.token for token in whole]
    assert [token.logprob for token in streamed] == pytest.approx([token.logprob for token in whole], abs=1e-3)


def test_n(client):
    answer = ask(client, n=3)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert [choice.message.content for choice in answer.choices] == [LANTERN] * 3
    assert answer.usage.completion_tokens == 3 * ask(client).usage.completion_tokens
    texts = {0: "", 1: "", 2: ""}
    for chunk in ask(client, n=3, stream=True):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == dict.fromkeys(range(3), LANTERN)


def test_n_draws_different_answers(client):
    answer = ask(client, n=4, temperature=2, top_p=1, max_tokens=16, seed=5)
    assert len({choice.message.content for choice in answer.choices}) > 1


@pytest.mark.parametrize("stop", [" protective", [" protective", "zzz"], ["a transparent protective"]])
def test_stop(client, stop):
    first = stop if isinstance(stop, str) else stop[0]
    expected = LANTERN[: LANTERN.index(first)]
    choice = ask(client, stop=stop).choices[0]
    assert choice.message.content == expected
    assert choice.finish_reason == "stop"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in ask(client, stop=stop, stream=True)) == expected


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_length(client, name):
    answer = ask(client, **{name: 2})
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 2
    assert LANTERN.startswith(answer.choices[0].message.content)


def test_seed_repeats_an_answer(client):
    def draw(seed):
        return ask(client, temperature=2, top_p=1, max_tokens=24, seed=seed).choices[0].message.content

    first = draw(1)
    assert draw(1) == first
    assert any(draw(seed) != first for seed in (2, 3, 4))


def test_logit_bias_forbids_a_token(client):
    first = ask(client, logprobs=True).choices[0].logprobs.content[0].token
    ids = client.with_options(base_url=str(client.base_url).removesuffix("v1/")).post(
        "/tokenize", cast_to=object, body={"prompt": first, "add_special_tokens": False}
    )["tokens"]
    answer = ask(client, logit_bias={str(ids[0]): -100}).choices[0].message.content
    assert not answer.startswith(first)


def test_models(client):
    models = client.models.list()
    assert "pocket" in [model.id for model in models]
    model = client.models.retrieve("pocket")
    assert (model.id, model.object) == ("pocket", "model")
    # Any name that is listed is one to ask with.
    for one in models:
        answer = client.chat.completions.create(
            model=one.id, messages=MESSAGES, temperature=0, extra_body=NO_THINKING
        )
        assert answer.choices[0].message.content == LANTERN
