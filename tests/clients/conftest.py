"""One server for all tests here; clients that speak to it."""

import anthropic
import openai
import pytest

from reckoner_server import Server

KEY = "key-of-the-client-tests"
CONTEXT = 2048


@pytest.fixture(scope="session")
def server():
    running = Server("--context", str(CONTEXT), key=KEY)
    yield running
    assert running.stop() == 0, "".join(running.log)


@pytest.fixture(scope="session")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key=KEY, max_retries=0, timeout=60) as made:
        yield made


@pytest.fixture(scope="session")
def claude(server):
    with anthropic.Anthropic(base_url=server.url, api_key=KEY, max_retries=0, timeout=60) as made:
        yield made


@pytest.fixture(autouse=True)
def server_is_idle_after(request):
    """Whatever a test did, its work has ended with it."""
    yield
    if "server" in request.fixturenames:
        assert request.getfixturevalue("server").wait_until_idle()
