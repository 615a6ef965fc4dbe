"""Validating webhooks over TLS."""

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from homelab_autoscaler.runtime.testing import eventually
from homelab_autoscaler.sandbox.apiserver.transport.certificates import self_signed
from homelab_autoscaler.sandbox.status import ApiStatusError

CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@pytest.fixture(scope="module")
def hook():
    """A webhook server over TLS that refuses what a test tells it to."""
    pair = self_signed("127.0.0.1")
    seen, probes = [], []
    answer = {"allowed": True}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
            probe = self.path.startswith("/probe")
            (probes if probe else seen).append(review)
            response = {"uid": review["uid"], **({"allowed": True} if probe else answer)}
            body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listener.socket = pair.context().wrap_socket(listener.socket, server_side=True)
    thread = threading.Thread(target=listener.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield {
        "url": f"https://127.0.0.1:{listener.server_port}",
        "ca": base64.b64encode(pair.certificate).decode(),
        "seen": seen,
        "probes": probes,
        "answer": answer,
    }
    listener.shutdown()
    listener.server_close()
    thread.join(10)


def entry(hook, namespace, path, group, resource, **more):
    return {
        "name": f"{resource}.test.example.dev",
        "clientConfig": {"url": f"{hook['url']}/{path}", "caBundle": hook["ca"]},
        "rules": [{"apiGroups": [group], "apiVersions": ["v1"], "operations": ["*"], "resources": [resource]}],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }


@pytest.fixture
def hooked(api, hook, namespace, config_maps):
    """Registers the webhook for widgets of one namespace; returns when the server asks it."""

    def register(**more):
        webhooks = [
            entry(hook, namespace, "check", "test.example.dev", "widgets", **more),
            entry(hook, namespace, "probe", "", "configmaps"),
        ]
        api.create(CONFIGURATIONS, {"metadata": {"name": namespace}, "webhooks": webhooks})

        def asked():
            api.create(config_maps, {"metadata": {"name": "probe"}}, dryRun="All")
            return any(review["namespace"] == namespace for review in hook["probes"])

        eventually(asked, 30, what="the webhook is asked")

    hook["seen"].clear()
    hook["answer"].clear()
    hook["answer"].update(allowed=True)
    yield register
    api.delete(f"{CONFIGURATIONS}/{namespace}")


def test_a_webhook_sees_the_complete_object_and_its_refusal_reaches_the_client(api, hook, hooked, widgets, widget):
    hooked()
    api.create(widgets, widget(spec={}))
    review = hook["seen"][0]
    assert (review["operation"], review["object"]["spec"], review["oldObject"]) == ("CREATE", {"size": 1}, None)
    assert "resourceVersion" not in review["object"]["metadata"]
    hook["answer"].update(allowed=False, status={"code": 409, "reason": "Conflict", "message": "not today"})
    with pytest.raises(ApiStatusError, match="denied the request: not today") as caught:
        api.patch(f"{widgets}/w", {"spec": {"size": 9}})
    assert (caught.value.code, caught.value.reason) == (409, "Conflict")
    hook["answer"].update(allowed=True)
    assert api.get(f"{widgets}/w")["spec"] == {"size": 1}
    api.delete(f"{widgets}/w")
    assert [item["operation"] for item in hook["seen"]] == ["CREATE", "UPDATE", "DELETE"]


def test_a_webhook_that_cannot_be_trusted_fails_or_is_ignored_as_it_says(api, hooked, widgets, widget, settles):
    other = base64.b64encode(self_signed("127.0.0.1").certificate).decode()
    hooked(clientConfig={"url": "https://127.0.0.1:1/x", "caBundle": other}, timeoutSeconds=2)
    with pytest.raises(ApiStatusError, match="failed calling webhook") as caught:
        api.create(widgets, widget())
    assert (caught.value.code, caught.value.reason) == (500, "InternalError")
    name = widgets.split("/")[5]
    change = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]
    api.patch(f"{CONFIGURATIONS}/{name}", change, "application/json-patch+json")
    settles(lambda: api.create(widgets, widget()), "the failure is ignored")


def test_match_conditions_choose_what_is_reviewed(api, hook, hooked, widgets, widget):
    hooked(matchConditions=[{"name": "big", "expression": "object.spec.size > 50"}])
    api.create(widgets, widget("small"))
    api.create(widgets, widget("big", spec={"size": 60}))
    assert [item["name"] for item in hook["seen"]] == ["big"]


def test_a_webhook_is_found_by_its_service(api, hook, hooked, namespace, widgets, widget):
    spec = {"type": "ExternalName", "externalName": "localhost"}
    api.create(f"/api/v1/namespaces/{namespace}/services", {"metadata": {"name": "front"}, "spec": spec})
    port = int(hook["url"].rpartition(":")[2])
    service = {"namespace": namespace, "name": "front", "path": "/check", "port": port}
    hooked(clientConfig={"service": service, "caBundle": hook["ca"]})
    # The certificate is for another name than the Service's: the server has come as far as to find that out.
    with pytest.raises(ApiStatusError, match=f"https://front.{namespace}.svc:{port}/check.*certificate"):
        api.create(widgets, widget())


def test_a_webhook_whose_service_is_missing_cannot_be_called(api, hook, hooked, namespace, widgets, widget):
    hooked(clientConfig={"service": {"namespace": namespace, "name": "nobody"}, "caBundle": hook["ca"]})
    with pytest.raises(ApiStatusError, match='service "nobody" not found') as caught:
        api.create(widgets, widget())
    assert (caught.value.code, caught.value.reason) == (500, "InternalError")
