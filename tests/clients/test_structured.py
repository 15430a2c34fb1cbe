"""Structured output: what comes fits what was asked for, whatever the model would rather say."""

import json
import re
from typing import Literal

import jsonschema
import openai
import pydantic
import pytest
from pocket import LANTERN, LANTERN_THOUGHT, NO_THINKING

MESSAGES = [{"role": "user", "content": "Define lantern."}]


class Entry(pydantic.BaseModel):
    kind: Literal["noun", "verb", "adjective"]
    syllables: int = pydantic.Field(ge=1, le=9)
    common: bool


SCHEMA = {
    "type": "object",
    "properties": {
        "tags": {"type": "array", "items": {"enum": ["light", "case", "ship"]}, "minItems": 1, "maxItems": 3},
        "score": {"type": "integer", "minimum": 0, "maximum": 100},
        "note": {"type": "string", "maxLength": 12},
        "source": {"anyOf": [{"type": "null"}, {"const": "dictionary"}]},
    },
    "required": ["tags", "score", "note", "source"],
    "additionalProperties": False,
}


def schema_format(schema, **more):
    return {"type": "json_schema", "json_schema": {"name": "entry", "schema": schema, **more}}


# White space is allowed between any two parts, and this model, which knows no JSON, writes a lot of it.
def ask(client, extra_body=NO_THINKING, temperature=0, max_tokens=1500, **more):
    return client.chat.completions.create(
        model="pocket",
        messages=MESSAGES,
        temperature=temperature,
        max_tokens=max_tokens,
        extra_body=extra_body,
        **more,
    )


def test_parse_into_a_pydantic_model(client):
    choice = client.chat.completions.parse(
        model="pocket",
        messages=MESSAGES,
        response_format=Entry,
        temperature=0,
        max_tokens=1500,
        extra_body=NO_THINKING,
    ).choices[0]
    assert choice.finish_reason == "stop"
    assert isinstance(choice.message.parsed, Entry)
    assert json.loads(choice.message.content) == choice.message.parsed.model_dump()


def test_a_raw_schema_at_any_temperature(client):
    for seed, temperature in enumerate([0, 0.7, 1.5, 2]):
        choice = ask(client, response_format=schema_format(SCHEMA), temperature=temperature, seed=seed).choices[0]
        assert choice.finish_reason == "stop"
        jsonschema.validate(json.loads(choice.message.content), SCHEMA)


def test_a_streamed_schema(client):
    chunks = list(ask(client, response_format=schema_format(SCHEMA, strict=True), stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    jsonschema.validate(json.loads(text), SCHEMA)
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_the_schema_applies_after_the_thinking(client):
    message = ask(client, extra_body=None, response_format=schema_format(SCHEMA)).choices[0].message
    assert message.reasoning_content == LANTERN_THOUGHT
    jsonschema.validate(json.loads(message.content), SCHEMA)


def test_any_json_object(client, server):
    # The model knows no JSON and may go on inside an object for ever: a bias opens it and closes it at once.
    def token(text):
        return json.loads(server.ask("/tokenize", {"prompt": text, "add_special_tokens": False})[1])["tokens"][0]

    bias = {str(token(text)): 100 for text in "{}"}
    choice = ask(client, response_format={"type": "json_object"}, logit_bias=bias).choices[0]
    assert choice.finish_reason == "stop"
    assert json.loads(choice.message.content) == {}
    # Cut off by length, it is the beginning of an object.
    cut = ask(client, response_format={"type": "json_object"}, max_tokens=30).choices[0]
    if cut.finish_reason == "stop":
        assert isinstance(json.loads(cut.message.content), dict)
    else:
        assert cut.message.content.lstrip().startswith("{")
        with pytest.raises(json.JSONDecodeError) as error:
            json.loads(cut.message.content)
        assert error.value.pos >= len(cut.message.content.rstrip()) or "Unterminated string" in error.value.msg


def test_text_is_no_constraint(client):
    assert ask(client, response_format={"type": "text"}).choices[0].message.content == LANTERN


def structured(**value):
    return {**NO_THINKING, "structured_outputs": value}


def test_a_regular_expression(client):
    pattern = r"[A-Z]{3}-[0-9]{2,4}"
    for seed, temperature in enumerate([0, 1, 2]):
        text = ask(client, extra_body=structured(regex=pattern), temperature=temperature, seed=seed)
        assert re.fullmatch(pattern, text.choices[0].message.content)


def test_a_grammar(client):
    grammar = 'start: "yes" ("," ("light" | "case"))* "."'
    text = ask(client, extra_body=structured(grammar=grammar), temperature=1, seed=3, max_tokens=100)
    if text.choices[0].finish_reason == "stop":
        assert re.fullmatch(r"yes(,(light|case))*\.", text.choices[0].message.content)
    else:
        assert text.choices[0].message.content.startswith("yes,")


def test_n_answers_each_fit(client):
    answer = ask(client, response_format=schema_format(SCHEMA), n=3, temperature=1.5, seed=1)
    for choice in answer.choices:
        jsonschema.validate(json.loads(choice.message.content), SCHEMA)
    assert len({choice.message.content for choice in answer.choices}) > 1


def test_completions_take_a_constraint_too(client):
    answer = client.completions.create(
        model="pocket",
        prompt="A number:",
        max_tokens=20,
        temperature=1,
        seed=1,
        extra_body={"structured_outputs": {"regex": "[0-9]{5}"}},
    )
    assert re.fullmatch("[0-9]{5}", answer.choices[0].text)


@pytest.mark.parametrize(
    "bad",
    [
        {"response_format": schema_format({"type": "no such type"})},
        {"response_format": {"type": "json_schema"}},
        {"response_format": {"type": "yaml"}},
        {"extra_body": structured(regex="(unclosed")},
        {"extra_body": structured(grammar="start: undefined_rule")},
    ],
    ids=["schema", "no schema", "type", "regex", "grammar"],
)
def test_what_cannot_be_followed_is_refused(client, bad):
    with pytest.raises(openai.BadRequestError) as error:
        ask(client, **bad)
    assert error.value.param.split(".")[0] in ("response_format", "structured_outputs")
    assert ask(client).choices[0].message.content == LANTERN
