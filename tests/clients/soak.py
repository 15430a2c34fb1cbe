#!/usr/bin/env python3
"""Many clients for a long time: nothing lost, nothing mixed, nothing leaked. Standard library only, light on the processor.

Each stream asks one question after the other, with known answers: tests/data/pocket-tasks.json, and chats of several turns and
with a common system text, whose answers the server itself gives at the start, one at a time. Some leave in the middle, some send
prompts of random tokens that push others out of the cache. Ends with a table, and with status 1 if anything was not as it must be.
"""

import argparse
import asyncio
import collections
import dataclasses
import json
import random
import sys
import time
import urllib.parse
import urllib.request

from pocket import CALLS, DEFINITIONS, NO_THINKING, QUESTIONS, TASKS
from reckoner_server import Server, metric_sums, wait_for


@dataclasses.dataclass(frozen=True)
class Question:
    name: str
    path: str
    body: dict
    answer: str = None  # None: not known, only its length is
    tokens: int = 0


def completion(task):
    body = {
        "prompt": task.prompt,
        "max_tokens": task.max_tokens,
        "temperature": 0,
        "add_special_tokens": False,
        "skip_special_tokens": False,
    }
    return body


def chat(messages, **more):
    return {"messages": messages, "temperature": 0, "max_tokens": 40, **NO_THINKING, **more}


def from_the_file():
    found = [Question(task.name, "/v1/completions", completion(task), task.expected) for task in QUESTIONS]
    # The task's expectation begins at the call; what stands before it is recorded.
    found += [Question(task.name, "/v1/completions", completion(task)) for task in CALLS]
    found += [Question("chat " + task.name, "/v1/chat/completions", chat(task.messages), task.expected) for task in QUESTIONS]
    return found


def to_be_recorded(generator):
    """Chats that share their beginnings: three turns, and questions under one long system text."""
    found = []
    for number in range(12):
        messages = []
        for turn, task in enumerate(generator.sample(DEFINITIONS, 3)):
            messages.append({"role": "user", "content": task.user})
            found.append(Question(f"turns {number}.{turn}", "/v1/chat/completions", chat(list(messages))))
            messages.append({"role": "assistant", "content": task.expected})
    system = next(task for task in TASKS if task.group == "needle 80 lines").user.rsplit("\n", 1)[0]
    for task in generator.sample(DEFINITIONS, 12):
        messages = [{"role": "system", "content": system}, *task.messages]
        found.append(Question(f"system {task.name}", "/v1/chat/completions", chat(messages)))
    return found


def random_tokens(generator, vocabulary=500):
    """A prompt that nobody else sends: it fills the cache, so that others are put out of it."""
    length = generator.randint(50, 900)
    body = {
        "prompt": [generator.randrange(100, vocabulary) for _ in range(length)],
        "max_tokens": generator.randint(1, 12),
        "ignore_eos": True,
        "temperature": 1,
    }
    return Question("random tokens", "/v1/completions", body, None, body["max_tokens"])


# --- HTTP ----------------------------------------------------------------------------------------------------------


class Lost(Exception):
    """The connection ended before the answer did."""


class Connection:
    """One connection, kept for the next request."""

    def __init__(self, address):
        self.address = address
        self.reader = self.writer = None

    async def open(self):
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(*self.address, limit=1 << 20)

    def close(self):
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None

    async def send(self, path, body):
        await self.open()
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        self.writer.write(head.encode() + data)
        await self.writer.drain()

    async def head(self):
        try:
            text = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Lost("no response") from error
        status, *lines = text.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        return int(status.split()[1]), headers

    async def pieces(self, headers):
        """The body as it comes."""
        try:
            if "content-length" in headers:
                yield await self.reader.readexactly(int(headers["content-length"]))
                return
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                yield (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readexactly(2)
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            raise Lost("cut off") from error


def delta_of(choice):
    return choice.get("text") or (choice.get("delta") or {}).get("content") or ""


class Stream:
    """What the events of one stream come to."""

    def __init__(self):
        self.rest = b""
        self.text = ""
        self.ids = set()
        self.reason = self.usage = None
        self.done = False

    def take(self, piece):
        *events, self.rest = (self.rest + piece).split(b"\n\n")
        for event in events:
            if not event.startswith(b"data: "):
                continue
            if event == b"data: [DONE]":
                self.done = True
                continue
            value = json.loads(event[6:])
            if "error" in value:
                raise Lost(f"error in the stream: {value['error']['message']}")
            self.ids.add(value["id"])
            self.usage = value.get("usage") or self.usage
            for choice in value["choices"]:
                self.text += delta_of(choice)
                self.reason = choice["finish_reason"] or self.reason


# --- the clients ---------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Result:
    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    seconds: list = dataclasses.field(default_factory=list)
    first: list = dataclasses.field(default_factory=list)
    tokens: int = 0
    violations: list = dataclasses.field(default_factory=list)

    def wrong(self, text):
        self.counts["wrong"] += 1
        if len(self.violations) < 50:
            self.violations.append(text)


async def ask(connection, question, stream, leave_after=None):
    """(text, tokens, seconds to the first piece); None when it left as it was asked to: after so many events, or so long."""
    body = dict(question.body)
    if stream:
        body.update(stream=True, stream_options={"include_usage": True})
    begin = time.monotonic()
    await connection.send(question.path, body)
    if leave_after is not None and not stream:
        await asyncio.sleep(leave_after)
        connection.close()
        return None
    status, headers = await connection.head()
    if not stream or status != 200:
        text = b"".join([piece async for piece in connection.pieces(headers)]).decode()
        if status != 200:
            raise Lost(f"status {status}: {text[:300]}")
        value = json.loads(text)
        choice = value["choices"][0]
        said = choice["text"] if "text" in choice else choice["message"]["content"]
        return said, value["usage"]["completion_tokens"], time.monotonic() - begin
    seen, first, count = Stream(), None, 0
    async for piece in connection.pieces(headers):
        seen.take(piece)
        if first is None and seen.text:
            first = time.monotonic() - begin
        count += 1
        if leave_after is not None and count > leave_after:
            connection.close()
            if question.answer is not None and not question.answer.startswith(seen.text):
                raise Lost(f"began with {seen.text!r}, expected {question.answer!r}")
            return None
    if not seen.done or seen.reason is None or seen.usage is None or len(seen.ids) != 1:
        raise Lost(f"incomplete stream: done {seen.done}, reason {seen.reason}, usage {seen.usage}, ids {seen.ids}")
    return seen.text, seen.usage["completion_tokens"], first


async def client(address, questions, generator, deadline, result, options):
    connection = Connection(address)
    while time.monotonic() < deadline:
        stream = generator.random() < 0.7
        noise = generator.random() < options.noise
        question = random_tokens(generator) if noise else generator.choice(questions)
        leave_after = None
        if generator.random() < options.leave:
            leave_after = generator.randrange(0, 12) if stream else generator.choice([0, 0.001, 0.01, 0.05, 0.2])
        begin = time.monotonic()
        try:
            answer = await ask(connection, question, stream, leave_after)
        except (Lost, OSError) as error:
            connection.close()
            result.wrong(f"{question.name}: {error}")
            continue
        if answer is None:
            result.counts["left a stream" if stream else "left without an answer"] += 1
            continue
        text, tokens, first = answer
        result.counts["streams" if stream else "whole answers"] += 1
        result.tokens += tokens
        result.seconds.append(time.monotonic() - begin)
        if stream and first is not None:
            result.first.append(first)
        if question.answer is not None and text != question.answer:
            result.wrong(f"{question.name}: {text!r}, expected {question.answer!r}")
        if question.answer is None and tokens != question.tokens:
            result.wrong(f"{question.name}: {tokens} tokens, expected {question.tokens}")
        if generator.random() < 0.1:
            connection.close()
    connection.close()


async def fill_cache(watched, generator):
    """Writes every page once: memory that was never touched is not resident, and would look like a leak later."""
    info = json.loads(watched.get("/server_info"))
    cache = next(setting["value"] for setting in info["settings"] if setting["name"] == "cache")
    left = 1.3 * int(cache.split()[0])

    async def send():
        nonlocal left
        connection = Connection(watched.address)
        while left > 0:
            question = random_tokens(generator)
            left -= len(question.body["prompt"])
            await ask(connection, question, stream=False)
        connection.close()

    await asyncio.gather(*(send() for _ in range(16)))


async def record(address, questions):
    """The answers that are not known yet, from the server alone with one request at a time."""
    connection = Connection(address)
    recorded = []
    for question in questions:
        if question.answer is None:
            text, tokens, _ = await ask(connection, question, stream=False)
            question = dataclasses.replace(question, answer=text, tokens=tokens)
        recorded.append(question)
    connection.close()
    return recorded


# --- the run -------------------------------------------------------------------------------------------------------


class Watched:
    """A server by its address, and its process if it is ours."""

    def __init__(self, url, server):
        self.url = url
        self.server = server
        parsed = urllib.parse.urlsplit(url)
        self.address = (parsed.hostname, parsed.port)

    def get(self, path, method="GET"):
        data = b"" if method == "POST" else None
        with urllib.request.urlopen(urllib.request.Request(self.url + path, data=data, method=method), timeout=30) as got:
            return got.read().decode()

    def metrics(self):
        return metric_sums(self.get("/metrics"))


async def watch(watched, begin, deadline, samples):
    """Resident memory and running requests, every half second."""
    while time.monotonic() < deadline:
        metrics = await asyncio.to_thread(watched.metrics)
        part = (time.monotonic() - begin) / (deadline - begin)
        samples.append((part, metrics["process_resident_memory_bytes"], metrics["vllm:num_requests_running"]))
        await asyncio.sleep(0.5)


async def soak(watched, options):
    generator = random.Random(options.seed)
    questions = from_the_file()
    if options.recorded:
        questions += to_be_recorded(generator)
    else:
        questions = [question for question in questions if question.answer is not None]
    watched.get("/flush_cache", "POST")
    questions = await record(watched.address, questions)
    await fill_cache(watched, generator)
    result, samples = Result(), []
    begin = time.monotonic()
    deadline = begin + options.seconds
    await asyncio.gather(
        watch(watched, begin, deadline, samples),
        *(
            client(watched.address, questions, random.Random(options.seed * 1000 + number), deadline, result, options)
            for number in range(options.streams)
        ),
    )
    return result, samples, time.monotonic() - begin


def percentile(values, part):
    return sorted(values)[min(len(values) - 1, int(part * len(values)))] if values else float("nan")


def check_end(watched, result):
    """Nothing runs, nothing waits, and no page is held once the cache is flushed."""

    def idle():
        metrics = watched.metrics()
        return metrics["vllm:num_requests_running"] == metrics["vllm:num_requests_waiting"] == 0

    if not wait_for(idle, 30, 0.1):
        result.wrong("requests still run or wait 30 seconds after the last client has gone")
    before = watched.metrics()
    flushed = json.loads(watched.get("/flush_cache", "POST"))
    wait_for(lambda: watched.metrics()["vllm:kv_cache_usage_perc"] == 0, 5)
    after = watched.metrics()
    for name in ("vllm:kv_cache_usage_perc", "reckoner:cached_pages", "reckoner:non_finite_rows_total"):
        if after[name] != 0:
            result.wrong(f"{name} is {after[name]} at the end")
    return before, flushed


def check_memory(samples, result, bound_bytes):
    """The most after the warm-up (20 to 40 % of the run) against the most at the end (80 to 100 %)."""
    early = [memory for part, memory, _ in samples if 0.2 <= part < 0.4]
    late = [memory for part, memory, _ in samples if part >= 0.8]
    if not early or not late:
        result.wrong("too short to say anything about memory")
        return float("nan"), float("nan")
    if max(late) - max(early) > bound_bytes:
        result.wrong(f"resident memory grew by {(max(late) - max(early)) / 1e6:.1f} MB after the warm-up")
    return max(early), max(late)


def restart(server, arguments):
    """kill -9, and the seconds until the same command prints its address and says that it is ready."""
    server.kill()
    begin = time.monotonic()
    again = Server(*arguments, port=server.port)
    printed = time.monotonic() - begin
    status, _ = again.ask("/ready")
    ready = time.monotonic() - begin
    again.stop()
    return printed, ready, status


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--url", help="a server that runs already, with the pocket model and no key; else one is started")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--leave", type=float, default=0.2, help="the part of the requests whose client leaves early")
    parser.add_argument("--noise", type=float, default=0.1, help="the part of the requests with random tokens")
    parser.add_argument("--cache-tokens", type=int, default=16384, help="of the server that is started; small, so that pages change hands")
    parser.add_argument("--memory-mb", type=float, default=5, help="how much memory may grow after the warm-up")
    parser.add_argument(
        "--precision",
        choices=["exact", "fast"],
        default="exact",
        help="of the server that is started; fast may answer differently in company, so recorded answers are left out",
    )
    options = parser.parse_args()
    options.recorded = options.precision == "exact"

    arguments = ["--precision", options.precision, "--context", "2048", "--cache-tokens", str(options.cache_tokens)]
    server = None if options.url else Server(*arguments)
    watched = Watched(options.url or server.url, server)
    try:
        result, samples, seconds = asyncio.run(soak(watched, options))
        metrics, flushed = check_end(watched, result)
        early, late = check_memory(samples, result, options.memory_mb * 1e6)
        rows = [
            ("seconds, streams, seed", f"{seconds:.0f}, {options.streams}, {options.seed}"),
            *((name, f"{count:,}") for name, count in sorted(result.counts.items())),
            ("tokens a second, in finished answers", f"{result.tokens / seconds:,.0f}"),
            ("seconds an answer, median and 99 %", f"{percentile(result.seconds, 0.5):.3f}, {percentile(result.seconds, 0.99):.3f}"),
            ("seconds to the first text, median and 99 %", f"{percentile(result.first, 0.5):.3f}, {percentile(result.first, 0.99):.3f}"),
            ("most requests running", f"{max((running for _, _, running in samples), default=0):.0f}"),
            ("preemptions", f"{metrics['vllm:num_preemptions_total']:.0f}"),
            ("prompt tokens found in the cache", f"{metrics['vllm:prefix_cache_hits_total'] / max(1, metrics['vllm:prefix_cache_queries_total']):.0%}"),
            ("pages freed by the last flush", f"{flushed['freed_pages']}"),
            ("resident memory after warm-up, at the end", f"{early / 1e6:.1f} MB, {late / 1e6:.1f} MB ({(late - early) / 1e6:+.1f})"),
        ]
        if not result.counts["streams"] or not result.counts["whole answers"]:
            result.wrong("no answers came")
        if server is not None:
            printed, ready, status = restart(server, arguments)
            rows.append(("kill -9, then address printed, ready", f"{printed:.2f} s, {ready:.2f} s"))
            if status != 200:
                result.wrong(f"/ready says {status} after the address was printed")
    finally:
        if server is not None:
            server.kill()
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        print(f"{name:<{width}}  {value}")
    for violation in result.violations:
        print("VIOLATION:", violation)
    print("failed" if result.violations else "passed")
    return 1 if result.violations else 0


if __name__ == "__main__":
    sys.exit(main())
