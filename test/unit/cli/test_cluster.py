"""The first questions to a cluster, before a manager starts."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from homelab_autoscaler.cli.cluster import check_cluster
from homelab_autoscaler.cli.failure import CommandError
from homelab_autoscaler.runtime import ClientConfig


@pytest.fixture
def server():
    """Answers every list with an empty one, or with `server.status`; keeps what was asked for."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            server.asked.append(urlsplit(self.path))
            body = b'{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": []}'
            self.send_response(server.status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.asked, server.status = [], 200
    server.config = ClientConfig.for_url(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_one_object_of_each_kind_is_asked_for_however_many_there_are(server):
    check_cluster(server.config, "pool")

    root = "/apis/infra.homecluster.dev/v2alpha1/namespaces/pool"
    kinds = ("groups", "nodes", "nodeclaims", "nodereclaims")
    assert [asked.path for asked in server.asked] == [f"{root}/{kind}" for kind in kinds]
    assert [parse_qs(asked.query) for asked in server.asked] == [{"limit": ["1"]}] * 4


@pytest.mark.parametrize(
    ("status", "said"), [(404, "does not know groups"), (403, "does not allow it"), (500, "API server")]
)
def test_a_refusal_names_the_server_and_ends_the_start(server, status, said):
    server.status = status
    with pytest.raises(CommandError, match=said) as failure:
        check_cluster(server.config, "pool")
    assert server.config.host in str(failure.value)
