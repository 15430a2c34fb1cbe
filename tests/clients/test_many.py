"""Many requests at once, and clients that leave."""

import asyncio
import json

import openai
from conftest import KEY
from pocket import CALLS, NO_THINKING, QUESTIONS, chat_tools, expected_call
from reckoner_server import wait_for

LONG = {"messages": [{"role": "user", "content": "Say something."}], "max_tokens": 1500, "temperature": 1}
ENDLESS = {**NO_THINKING, "ignore_eos": True}


async def answer(client, task, stream):
    request = {"model": "pocket", "messages": task.messages, "temperature": 0, "extra_body": NO_THINKING}
    if task.tools:
        request["tools"] = chat_tools(*map(json.loads, task.tools))
    if not stream:
        message = (await client.chat.completions.create(**request)).choices[0].message
        if task.tools:
            function = message.tool_calls[0].function
            return function.name, json.loads(function.arguments)
        return message.content
    text, name, arguments = "", "", ""
    async for chunk in await client.chat.completions.create(stream=True, **request):
        text += chunk.choices[0].delta.content or ""
        for part in chunk.choices[0].delta.tool_calls or []:
            name += part.function.name or ""
            arguments += part.function.arguments or ""
    return (name, json.loads(arguments)) if task.tools else text


def test_sixteen_at_a_time_get_their_own_answers(server):
    tasks = [*QUESTIONS[:48], *QUESTIONS[50:60], *CALLS]

    async def all_of_them():
        gate = asyncio.Semaphore(16)
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0) as client:

            async def one(index, task):
                async with gate:
                    return await answer(client, task, stream=index % 2 == 0)

            return await asyncio.gather(*(one(index, task) for index, task in enumerate(tasks)))

    answers = asyncio.run(all_of_them())
    wrong = {
        task.name: given
        for task, given in zip(tasks, answers)
        if given != (expected_call(task) if task.tools else task.expected)
    }
    assert wrong == {}


def test_closing_a_stream_ends_its_work(client, server):
    before = server.metrics()["vllm:generation_tokens_total"]
    stream = client.chat.completions.create(model="pocket", stream=True, extra_body=ENDLESS, **LONG)
    for number, _ in enumerate(stream):
        if number == 5:
            break
    assert server.info()["running"] == 1
    stream.close()
    assert server.wait_until_idle()
    assert server.metrics()["vllm:generation_tokens_total"] - before < LONG["max_tokens"]


def test_a_client_that_gives_up_waiting_ends_its_work(server):
    async def give_up():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0) as client:
            asked = asyncio.create_task(client.chat.completions.create(model="pocket", extra_body=ENDLESS, **LONG))
            while server.info()["running"] == 0:
                assert not asked.done()
                await asyncio.sleep(0.01)
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    before = server.metrics()
    asyncio.run(give_up())
    assert server.wait_until_idle()
    after = server.metrics()
    assert after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"] < LONG["max_tokens"]


def test_others_go_on_when_one_leaves(server):
    async def together():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0) as client:

            async def leave(after):
                stream = await client.chat.completions.create(model="pocket", stream=True, extra_body=ENDLESS, **LONG)
                count = 0
                async for _ in stream:
                    count += 1
                    if count > after:
                        break
                await stream.close()

            answers, *_ = await asyncio.gather(
                asyncio.gather(*(answer(client, task, stream=True) for task in QUESTIONS[:8])),
                *(leave(after) for after in (0, 1, 3, 10)),
            )
            return answers

    assert asyncio.run(together()) == [task.expected for task in QUESTIONS[:8]]


def test_nothing_is_held_when_all_is_done(server):
    assert server.wait_until_idle()
    assert server.ask("/flush_cache", method="POST")[0] == 200
    assert wait_for(lambda: server.metrics()["vllm:kv_cache_usage_perc"] == 0)
    metrics = server.metrics()
    assert metrics["vllm:num_requests_running"] == metrics["vllm:num_requests_waiting"] == 0
    assert metrics["reckoner:non_finite_rows_total"] == 0
