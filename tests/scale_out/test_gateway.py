"""Two replicas behind the gateway smg, as docs/scale-out.md sets them up."""

import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading

import anthropic
import openai
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
from pocket import LANTERN, NO_THINKING, QUESTIONS
from reckoner_server import Server, wait_for

KEY = "key-of-the-gateway-tests"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Gateway:
    def __init__(self, urls):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        command = [
            str(pathlib.Path(sys.executable).parent / "smg"), "launch",
            "--host", "127.0.0.1", "--port", str(self.port),
            "--worker-urls", *urls,
            "--policy", "cache_aware", "--disable-tokenizer-autoload",
            "--health-check-endpoint", "/ready", "--health-check-interval-secs", "1",
            "--health-failure-threshold", "2", "--health-success-threshold", "1",
            "--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port()),
            "--api-key", KEY,
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.log = []
        threading.Thread(target=lambda: self.log.extend(self.process.stdout), daemon=True).start()
        self.client = openai.OpenAI(base_url=self.url + "/v1", api_key=KEY, max_retries=0, timeout=30)

    def healthy(self):
        """The replicas that it sends requests to."""
        try:
            workers = self.client.with_options(base_url=self.url).get("/workers", cast_to=object)["workers"]
        except openai.OpenAIError:
            return set()
        return {worker["url"] for worker in workers if worker["is_healthy"]}

    def stop(self):
        self.client.close()
        self.process.kill()
        self.process.wait()


class Fleet:
    def __init__(self):
        self.replicas = [Server("--context", "2048", key=KEY) for _ in range(2)]
        self.gateway = Gateway([replica.url for replica in self.replicas])
        assert wait_for(lambda: len(self.gateway.healthy()) == 2, 30), "".join(self.gateway.log)

    def stop(self):
        self.gateway.stop()
        for replica in self.replicas:
            replica.stop()

    def busy(self):
        """Which of them answers something."""
        running = []

        def found():
            running[:] = [index for index, replica in enumerate(self.replicas) if replica.info()["running"]]
            return running

        assert wait_for(found)
        return running[0]

    def replace(self, index):
        """The same address again, as a supervisor restarts it."""
        self.replicas[index] = Server("--context", "2048", key=KEY, port=self.replicas[index].port)


@pytest.fixture(scope="module")
def fleet():
    made = Fleet()
    yield made
    made.stop()


def ask(fleet, content="Define lantern."):
    """The answer, and the address of the replica that gave it."""
    response = fleet.gateway.client.chat.completions.with_raw_response.create(
        model="pocket",
        messages=[{"role": "user", "content": content}],
        temperature=0,
        extra_body=NO_THINKING,
    )
    return response.parse().choices[0].message.content, response.headers["x-smg-routed-worker-id"]


def stream(fleet, content="Define lantern.", **more):
    return fleet.gateway.client.chat.completions.create(
        model="pocket",
        messages=[{"role": "user", "content": content}],
        temperature=0,
        stream=True,
        extra_body={**NO_THINKING, **more},
    )


def test_models_are_listed(fleet):
    assert "pocket" in [model.id for model in fleet.gateway.client.models.list()]


def test_answers_pass_through(fleet):
    for task in QUESTIONS[::5]:
        assert ask(fleet, task.user)[0] == task.expected, task.name


def test_streams_pass_through(fleet):
    chunks = list(stream(fleet))
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert "".join(texts) == LANTERN
    assert sum(map(bool, texts)) > 3
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_the_other_apis_pass_through(fleet):
    client = fleet.gateway.client
    response = client.responses.create(
        model="pocket", input="Define lantern.", temperature=0, reasoning={"effort": "none"}
    )
    assert response.output_text == LANTERN
    task = QUESTIONS[0]
    answer = client.completions.create(model="pocket", prompt=task.prompt, max_tokens=task.max_tokens, temperature=0)
    assert answer.choices[0].text == task.expected
    with anthropic.Anthropic(base_url=fleet.gateway.url, api_key=KEY, max_retries=0) as claude:
        message = claude.messages.create(
            model="pocket",
            max_tokens=100,
            messages=[{"role": "user", "content": "Define lantern."}],
            thinking={"type": "disabled"},
            extra_body={"temperature": 0},
        )
    assert message.content[0].text == LANTERN


def test_a_replica_can_be_added(fleet):
    third = Server("--context", "2048", key=KEY)
    try:
        client = fleet.gateway.client.with_options(base_url=fleet.gateway.url)
        made = client.post("/workers", cast_to=object, body={"url": third.url, "api_key": KEY})
        assert wait_for(lambda: third.url in fleet.gateway.healthy(), 30)
        client.delete(made["location"], cast_to=object)
        assert wait_for(lambda: third.url not in fleet.gateway.healthy())
    finally:
        third.stop()


def test_the_gateways_key_is_asked_for(fleet):
    with openai.OpenAI(base_url=fleet.gateway.url + "/v1", api_key="other", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError):
            stranger.chat.completions.create(model="pocket", messages=[{"role": "user", "content": "x"}])


def test_refusals_pass_through(fleet):
    with pytest.raises(openai.BadRequestError) as error:
        fleet.gateway.client.chat.completions.create(
            model="pocket", messages=[{"role": "user", "content": "x"}], temperature=-1
        )
    assert error.value.status_code == 400
    assert "temperature" in str(error.value)


def questions_about(task):
    """Several questions about the same list of codes, with their answers."""
    codes, _ = task.user.rsplit("\n", 1)
    pairs = re.findall(r"The code of (\w+) is (\d+)\.", codes)
    return [(f"{codes}\nWhat is the code of {word}?", number) for word, number in pairs]


def test_requests_with_the_same_beginning_meet_their_cache(fleet):
    for replica in fleet.replicas:
        assert replica.ask("/flush_cache", method="POST")[0] == 200
    before = sum(replica.metrics()["vllm:prefix_cache_hits_total"] for replica in fleet.replicas)
    prompts = sum(replica.metrics()["vllm:prompt_tokens_total"] for replica in fleet.replicas)
    tasks = [task for task in QUESTIONS if task.group in ("needle 40 lines", "needle 80 lines")]
    places, right, rounds = {}, 0, 4
    for number in range(rounds):
        for task in tasks:
            content, expected = questions_about(task)[7 * number]
            answer, place = ask(fleet, content)
            right += answer == expected
            places.setdefault(task.name, set()).add(place)
    assert right >= 0.9 * rounds * len(tasks)  # this model finds nearly every code
    assert all(len(place) == 1 for place in places.values()), places
    assert len(set.union(*places.values())) == 2, "both replicas work"
    hits = sum(replica.metrics()["vllm:prefix_cache_hits_total"] for replica in fleet.replicas) - before
    prompts = sum(replica.metrics()["vllm:prompt_tokens_total"] for replica in fleet.replicas) - prompts
    # All rounds but the first find all but the question.
    assert hits > 0.9 * prompts * (rounds - 1) / rounds


def test_a_replica_that_drains_finishes_what_it_has(fleet):
    running = stream(fleet, ignore_eos=True, max_tokens=400)
    next(iter(running))
    busy = fleet.busy()
    fleet.replicas[busy].process.send_signal(signal.SIGTERM)
    rest = list(running)
    assert rest[-1].choices[0].finish_reason == "length"
    assert fleet.replicas[busy].process.wait(30) == 0
    other = fleet.replicas[1 - busy].url
    assert wait_for(lambda: fleet.gateway.healthy() == {other})
    assert [ask(fleet, task.user) for task in QUESTIONS[:5]] == [(task.expected, other) for task in QUESTIONS[:5]]
    fleet.replace(busy)
    assert wait_for(lambda: len(fleet.gateway.healthy()) == 2, 30)


def test_a_replica_that_dies_is_left_out_and_taken_back(fleet):
    dead, alive = fleet.replicas
    dead.kill()
    assert wait_for(lambda: fleet.gateway.healthy() == {alive.url}), "the health check notices"
    for task in QUESTIONS[:12]:
        assert ask(fleet, task.user) == (task.expected, alive.url), task.name
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream(fleet)) == LANTERN
    fleet.replace(0)
    assert wait_for(lambda: len(fleet.gateway.healthy()) == 2, 30), "the health check notices"
    # It has to work alone now.
    assert alive.stop() == 0
    assert wait_for(lambda: fleet.gateway.healthy() == {dead.url})
    for task in QUESTIONS[12:24]:
        assert ask(fleet, task.user) == (task.expected, dead.url), task.name
    fleet.replace(1)
    assert wait_for(lambda: len(fleet.gateway.healthy()) == 2, 30)


def test_a_death_in_the_middle_of_an_answer_is_seen(fleet):
    running = stream(fleet, ignore_eos=True, max_tokens=1500)
    chunks = iter(running)
    next(chunks)
    busy = fleet.busy()
    fleet.replicas[busy].kill()
    rest = []
    with pytest.raises(openai.APIError):  # not a silent end
        for chunk in chunks:
            rest.append(chunk)
    assert all(chunk.choices[0].finish_reason is None for chunk in rest)
    # Sent again, it is answered, even before the health check has noticed.
    assert ask(fleet)[0] == LANTERN
    fleet.replace(busy)
    assert wait_for(lambda: len(fleet.gateway.healthy()) == 2, 30)
