"""RBAC, tokens, impersonation, and validating webhooks over TLS."""

import base64
import json
import ssl
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from homelab_autoscaler.sandbox.apiserver import ApiServerOptions
from homelab_autoscaler.sandbox.apiserver.transport.certificates import self_signed
from homelab_autoscaler.sandbox.status import ApiStatusError
from homelab_autoscaler.sandbox.testing import running_api_server

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROBOT = "system:serviceaccount:default:robot"


@pytest.fixture(scope="module")
def guarded():
    with running_api_server(options=ApiServerOptions(rbac=True)) as running:
        yield running


def grant(server, name, rules, *, namespace="default", user=ROBOT):
    admin = server.client()
    where = f"{RBAC}/namespaces/{namespace}"
    admin.create(f"{where}/roles", {"metadata": {"name": name}, "rules": rules})
    subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    admin.create(f"{where}/rolebindings", {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]})


def rule(verbs, resources, group="", **more):
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split(), **more}


def test_a_role_gives_its_verbs_in_its_namespace_and_a_binding_takes_them_back(guarded):
    grant(guarded, "reader", [rule("get list", "configmaps")], user="reader")
    reader = guarded.client("reader")
    assert reader.list("/api/v1/namespaces/default/configmaps")["items"] == []
    for path in ("/api/v1/namespaces/kube-system/configmaps", "/api/v1/configmaps", "/api/v1/namespaces/default/pods"):
        with pytest.raises(ApiStatusError, match='User "reader" cannot list resource') as caught:
            reader.list(path)
        assert caught.value.code == 403
    with pytest.raises(ApiStatusError, match="cannot watch resource"):
        reader.list("/api/v1/namespaces/default/configmaps", watch=True)
    guarded.client().delete(f"{RBAC}/namespaces/default/rolebindings/reader")
    with pytest.raises(ApiStatusError, match="cannot list resource"):
        reader.list("/api/v1/namespaces/default/configmaps")


def test_a_right_on_status_is_no_right_on_the_object(guarded):
    admin = guarded.client()
    admin.create(
        "/api/v1/namespaces/default/pods",
        {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    )
    grant(guarded, "keeper", [rule("patch", "pods/status")], user="keeper")
    keeper = guarded.client("keeper")
    keeper.patch("/api/v1/namespaces/default/pods/p/status", {"status": {"phase": "Running"}})
    with pytest.raises(ApiStatusError, match='cannot patch resource "pods" in'):
        keeper.patch("/api/v1/namespaces/default/pods/p", {"metadata": {"labels": {"a": "b"}}})


def test_nobody_hands_out_rights_that_they_do_not_have(guarded):
    grant(
        guarded, "granter", [rule("create", "roles", "rbac.authorization.k8s.io"), rule("get", "pods")], user="granter"
    )
    granter = guarded.client("granter")
    granter.create(f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "same"}, "rules": [rule("get", "pods")]})
    with pytest.raises(ApiStatusError, match="attempting to grant RBAC permissions not currently held"):
        granter.create(f"{RBAC}/namespaces/default/roles", {"metadata": {"name": "x"}, "rules": [rule("*", "pods")]})


def fetch(server, path, **headers):
    context = ssl._create_unverified_context()
    request = urllib.request.Request(
        server.url + path, headers={key.replace("_", "-"): value for key, value in headers.items()}
    )
    try:
        with urllib.request.urlopen(request, timeout=10, context=context) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_tokens_say_who_asks_and_administrators_can_act_as_others(guarded):
    admin = json.loads(guarded.kubeconfig.read_text())["users"][0]["user"]["token"]
    robot = guarded.run(lambda: guarded.server.token(ROBOT))
    path = "/api/v1/namespaces/default/secrets"
    assert fetch(guarded, path) == 403
    assert fetch(guarded, path, Authorization="Bearer nonsense") == 401
    assert fetch(guarded, path, Authorization=f"Bearer {admin}") == 200
    assert fetch(guarded, path, Authorization=f"Bearer {robot}") == 403
    grant(guarded, "robot", [rule("list", "secrets")])
    assert fetch(guarded, path, Authorization=f"Bearer {robot}") == 200
    assert fetch(guarded, path, Authorization=f"Bearer {admin}", Impersonate_User=ROBOT) == 200
    assert fetch(guarded, path, Authorization=f"Bearer {admin}", Impersonate_User="nobody") == 403
    assert fetch(guarded, path, Authorization=f"Bearer {robot}", Impersonate_User="system:admin") == 403
    assert fetch(guarded, "/healthz") == 200


@pytest.fixture(scope="module")
def hook():
    """A webhook server over TLS that refuses what a test tells it to."""
    pair = self_signed("127.0.0.1")
    seen = []
    answer = {"allowed": True}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
            seen.append(review)
            response = {"uid": review["uid"], **answer}
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
        "url": f"https://127.0.0.1:{listener.server_port}/check",
        "ca": base64.b64encode(pair.certificate).decode(),
        "seen": seen,
        "answer": answer,
    }
    listener.shutdown()
    listener.server_close()
    thread.join(10)


@pytest.fixture
def hooked(api, hook, namespace):
    """The webhook registered for one namespace."""

    def register(**more):
        entry = {
            "name": "check.test.example.dev",
            "clientConfig": {"url": hook["url"], "caBundle": hook["ca"]},
            "rules": [
                {
                    "apiGroups": ["test.example.dev"],
                    "apiVersions": ["v1"],
                    "operations": ["*"],
                    "resources": ["widgets"],
                }
            ],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            **more,
        }
        api.create(path, {"metadata": {"name": namespace}, "webhooks": [entry]})

    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    hook["seen"].clear()
    hook["answer"].clear()
    hook["answer"].update(allowed=True)
    yield register
    api.delete(f"{path}/{namespace}")


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


def test_a_webhook_that_cannot_be_trusted_fails_or_is_ignored_as_it_says(api, hooked, widgets, widget):
    other = base64.b64encode(self_signed("127.0.0.1").certificate).decode()
    hooked(clientConfig={"url": "https://127.0.0.1:1/x", "caBundle": other}, timeoutSeconds=2)
    with pytest.raises(ApiStatusError, match="failed calling webhook") as caught:
        api.create(widgets, widget())
    assert (caught.value.code, caught.value.reason) == (500, "InternalError")
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    name = widgets.split("/")[5]
    change = [{"op": "replace", "path": "/webhooks/0/failurePolicy", "value": "Ignore"}]
    api.patch(f"{path}/{name}", change, "application/json-patch+json")
    api.create(widgets, widget())


def test_match_conditions_choose_what_is_reviewed(api, hook, hooked, widgets, widget):
    hooked(matchConditions=[{"name": "big", "expression": "object.spec.size > 50"}])
    api.create(widgets, widget("small"))
    api.create(widgets, widget("big", spec={"size": 60}))
    assert [item["name"] for item in hook["seen"]] == ["big"]
