"""What is refused reaches the user as the client's own exceptions, with what to change."""

import openai
import pytest
from conftest import CONTEXT, KEY
from pocket import LANTERN, NO_THINKING

MESSAGES = [{"role": "user", "content": "Define lantern."}]


def ask(client, *, model="pocket", messages=MESSAGES, extra_body=NO_THINKING, **more):
    return client.chat.completions.create(model=model, messages=messages, extra_body=extra_body, **more)


def test_a_wrong_model(client):
    for call in (
        lambda: ask(client, model="gpt-7"),
        lambda: client.completions.create(model="gpt-7", prompt="a"),
        lambda: client.responses.create(model="gpt-7", input="a"),
        lambda: client.models.retrieve("gpt-7"),
    ):
        with pytest.raises(openai.NotFoundError) as error:
            call()
        assert error.value.code == "model_not_found"
        assert "pocket" in error.value.message, "says which one there is"


@pytest.mark.parametrize("key", ["", KEY + "x", KEY[:-1], "x"])
def test_a_wrong_key(server, key):
    with openai.OpenAI(base_url=server.url + "/v1", api_key=key or "none", max_retries=0) as stranger:
        for call in (lambda: ask(stranger), lambda: ask(stranger, stream=True), stranger.models.list):
            with pytest.raises(openai.AuthenticationError) as error:
                call()
            assert error.value.status_code == 401
            assert KEY not in str(error.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -1),
        ("temperature", "warm"),
        ("top_p", 1.5),
        ("max_tokens", 0),
        ("n", 0),
        ("top_logprobs", 1000),
        ("stop", 7),
        ("logit_bias", {"x": 1}),
        ("seed", "x"),
        ("messages", []),
        ("messages", "Define lantern."),
        ("tools", [{"type": "function"}]),
        ("stream", "yes"),
        ("response_format", {"type": "yaml"}),
    ],
)
def test_a_wrong_value_names_its_field(client, field, value):
    more = {"logprobs": True} if field == "top_logprobs" else {}
    with pytest.raises(openai.BadRequestError) as error:
        ask(client, **{field: value}, **more)
    assert error.value.status_code == 400
    assert error.value.type == "invalid_request_error"
    assert error.value.param.startswith(field)
    assert field in error.value.message


def test_a_misspelt_field_is_named_with_the_right_one(client):
    with pytest.raises(openai.BadRequestError) as error:
        ask(client, extra_body={"temperatur": 0.5})
    assert "'temperature'" in error.value.message


def test_too_long(client):
    for call in (
        lambda: ask(client, messages=[{"role": "user", "content": "lantern " * 3000}]),
        lambda: ask(client, max_tokens=CONTEXT),
        lambda: client.completions.create(model="pocket", prompt=[5] * (CONTEXT + 1)),
        lambda: client.responses.create(model="pocket", input="lantern " * 3000),
    ):
        with pytest.raises(openai.BadRequestError) as error:
            call()
        assert error.value.code == "context_length_exceeded"
        assert str(CONTEXT) in error.value.message


def test_the_next_request_is_answered(client):
    with pytest.raises(openai.BadRequestError):
        ask(client, temperature=-1)
    assert ask(client, temperature=0).choices[0].message.content == LANTERN
