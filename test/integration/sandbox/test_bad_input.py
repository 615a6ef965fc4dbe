"""Bad input that only the embedded API server meets, or only it can be asked about."""

import asyncio
import logging
import time

import pytest
from wire import Wire

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture
def wire(server):
    return Wire(server.kubeconfig)


@pytest.fixture
def quiet(caplog):
    """Fails a test during which the server met an error of its own."""
    with caplog.at_level(logging.ERROR):
        yield
    assert [record.getMessage() for record in caplog.records if "unexpected error" in record.getMessage()] == []


def test_a_continue_token_from_before_the_log_is_expired_and_offers_the_rest(server, wire, api, quiet):
    for name in ("stale-a", "stale-b"):
        api.create(CONFIG_MAPS, {"metadata": {"name": name}})
    token = api.list(CONFIG_MAPS, limit=1)["metadata"]["continue"]
    api.create(CONFIG_MAPS, {"metadata": {"name": "stale-c"}})
    server.run(server.server.faults.forget_history)
    status, answer = wire.send("GET", f"{CONFIG_MAPS}?limit=1&continue={token}")
    assert (status, answer["reason"]) == (410, "Expired")
    status, answer = wire.send("GET", f"{CONFIG_MAPS}?continue={answer['metadata']['continue']}")
    assert (status, [item["metadata"]["name"] for item in answer["items"]][-1]) == (200, "stale-c")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://page.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Host": "page.example:80"},
    ],
)
def test_a_web_page_in_a_browser_is_not_served(wire, quiet, headers):
    assert wire.send("POST", CONFIG_MAPS, b'{"metadata": {"name": "csrf"}}', **headers)[0] == 403
    assert wire.send("GET", f"{CONFIG_MAPS}/csrf")[0] == 404


def test_a_watch_ends_when_its_client_goes_away(server, wire, quiet):
    before = server.run(lambda: server.server.open_watches)
    connections = []
    for _ in range(20):
        connection = wire.connect()
        connection.sendall(wire.head("GET", "/api/v1/nodes?watch=true"))
        assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK")
        connections.append(connection)
    assert server.run(lambda: server.server.open_watches) == before + 20
    for connection in connections:
        connection.close()

    deadline = time.monotonic() + 20
    while server.run(lambda: server.server.open_watches) > before:
        assert time.monotonic() < deadline, "watches of clients that have gone are still open"
        server.call(asyncio.sleep(0.01))


def test_a_body_of_ten_megabytes_is_read_to_its_end_and_answered(wire, quiet):
    status, answer = wire.send("POST", CONFIG_MAPS, b'{"data": {"a": "' + b"x" * 10_000_000 + b'"}}')
    assert (status, answer["reason"]) == (413, "RequestEntityTooLarge")


def test_values_nested_deeper_than_documented_are_refused(wire, quiet):
    status, answer = wire.send("POST", CONFIG_MAPS, b'{"a":' * 300 + b"1" + b"}" * 300)
    assert (status, answer["message"]) == (400, "json: exceeded max depth of 200")
