"""completions of the official OpenAI client, and the token tools beside them."""

import json

import pytest
from pocket import QUESTIONS

TASK = QUESTIONS[0]


def ask(client, *, prompt=TASK.prompt, max_tokens=TASK.max_tokens, **more):
    return client.completions.create(model="pocket", prompt=prompt, max_tokens=max_tokens, temperature=0, **more)


@pytest.fixture(scope="module")
def ids(server):
    status, text = server.ask("/tokenize", {"prompt": TASK.prompt})
    assert status == 200
    return json.loads(text)["tokens"]


def test_raw_prompts_are_continued(client):
    for task in QUESTIONS[::7]:
        answer = ask(client, prompt=task.prompt, max_tokens=task.max_tokens)
        assert answer.object == "text_completion"
        assert answer.choices[0].text == task.expected, task.name
        assert answer.choices[0].finish_reason == "stop"


def test_token_ids_are_the_same_prompt(client, ids, server):
    answer = ask(client, prompt=ids)
    assert answer.choices[0].text == TASK.expected
    assert answer.usage.prompt_tokens == len(ids)
    assert json.loads(server.ask("/detokenize", {"tokens": ids})[1])["prompt"] == TASK.prompt


def test_lists_of_prompts(client, ids):
    texts = [task.prompt for task in QUESTIONS[:5]]
    answer = ask(client, prompt=texts)
    assert [choice.index for choice in answer.choices] == list(range(5))
    assert [choice.text for choice in answer.choices] == [task.expected for task in QUESTIONS[:5]]
    assert [choice.text for choice in ask(client, prompt=[ids, ids]).choices] == [TASK.expected] * 2


def test_echo(client, ids):
    for prompt in (TASK.prompt, ids):
        assert ask(client, prompt=prompt, echo=True).choices[0].text == TASK.prompt + TASK.expected


def test_echo_scores_a_text(client):
    text = TASK.prompt + TASK.expected
    answer = client.completions.create(
        model="pocket", prompt=text, max_tokens=1, temperature=0, echo=True, logprobs=2
    ).choices[0]
    scores = answer.logprobs
    assert "".join(scores.tokens).startswith(text)
    assert scores.token_logprobs[0] is None
    assert len(scores.tokens) == len(scores.token_logprobs) == len(scores.top_logprobs) == len(scores.text_offset)
    for token, offset in zip(scores.tokens, scores.text_offset):
        assert answer.text[offset:].startswith(token)
    learnt = [
        score
        for score, offset in zip(scores.token_logprobs, scores.text_offset)
        if len(TASK.prompt) <= offset < len(text)
    ]
    assert min(learnt) > -1, "what it would have said is likely"
    for token, score, top in list(zip(scores.tokens, scores.token_logprobs, scores.top_logprobs))[1:]:
        assert len(top) in (2, 3)
        if token in top:
            assert top[token] == pytest.approx(score, abs=1e-5)
        assert score <= max(top.values()) + 1e-5


def test_stream_joins_to_the_whole(client):
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == TASK.expected
    assert chunks[-1].usage.completion_tokens == ask(client).usage.completion_tokens


def test_sixteen_tokens_are_the_default(client):
    answer = client.completions.create(
        model="pocket", prompt="a", temperature=0, extra_body={"ignore_eos": True}
    )
    assert answer.usage.completion_tokens == 16
    assert answer.choices[0].finish_reason == "length"


def test_n_stop_and_seed(client):
    first_word = TASK.expected.split()[0]
    answer = ask(client, n=2, stop=TASK.expected[len(first_word) :][:6])
    assert [choice.text for choice in answer.choices] == [first_word] * 2

    def draw(seed):
        return client.completions.create(
            model="pocket", prompt="The", max_tokens=12, temperature=2, top_p=1, seed=seed
        ).choices[0].text

    assert draw(7) == draw(7)
    assert any(draw(seed) != draw(7) for seed in (8, 9, 10))
