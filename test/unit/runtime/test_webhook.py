"""Webhook server: reviews in and out, TLS, certificates that change while it runs."""

import base64
import json
import ssl
import threading
import urllib.error
import urllib.request
from datetime import timedelta
from http.client import HTTPSConnection

import pytest
import structlog

from homelab_api.core import CoreNode
from homelab_autoscaler.runtime import StopSignal
from homelab_autoscaler.runtime.clock import SystemClock
from homelab_autoscaler.runtime.errors import AlreadyExistsError, ConflictError, NotFoundError
from homelab_autoscaler.runtime.metrics import Metrics
from homelab_autoscaler.runtime.patch import JsonPatch, merge
from homelab_autoscaler.runtime.testing import FakeClock, eventually
from homelab_autoscaler.runtime.webhook import (
    CertificateError,
    Decision,
    FieldCause,
    ManagedCertificates,
    ManagedCertificatesOptions,
    MountedCertificates,
    NotReadyError,
    WebhookServer,
    allow,
    deny,
    field_path,
    mutate,
)
from homelab_autoscaler.runtime.webhook.model import ValidatingWebhookConfiguration
from homelab_autoscaler.runtime.webhook.pki import issue, make_authority


def review(**request):
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "r1",
            "operation": "CREATE",
            "kind": {"group": "", "version": "v1", "kind": "Node"},
            "resource": {"group": "", "version": "v1", "resource": "nodes"},
            "name": "n1",
            "userInfo": {"username": "alice", "groups": ["dev"]},
            "object": {"kind": "Node", "metadata": {"name": "n1"}},
            **request,
        },
    }


@pytest.fixture
def server():
    running = []

    def start(certificates=None, **handlers):
        metrics = Metrics()
        server = WebhookServer("127.0.0.1:0", certificates, SystemClock(), metrics)
        for path, handler in handlers.items():
            server.register(f"/{path}", handler)
        stop = StopSignal()
        thread = threading.Thread(target=server.run, args=(stop,))
        thread.start()
        running.append((stop, thread))
        server.metrics = metrics
        return server

    yield start
    for stop, thread in running:
        stop.set()
        thread.join(5)
        assert not thread.is_alive()


def post(server, path, body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", data=data, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=5) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_review_reaches_its_handler_and_is_answered_under_its_uid(server):
    seen = []

    def handler(request):
        seen.append(request)
        return allow()

    s = server(check=handler)
    status, answer = post(s, "/check", review(subResource="status", dryRun=True, oldObject={"metadata": {}}))
    assert status == 200
    assert answer["response"] == {"uid": "r1", "allowed": True}
    (request,) = seen
    assert (request.operation, request.kind, request.resource, request.subresource) == (
        "CREATE",
        "Node",
        "nodes",
        "status",
    )
    assert (request.user, request.groups, request.dry_run, request.name) == ("alice", ("dev",), True, "n1")
    assert request.decode(CoreNode).name == "n1"
    assert request.decode_old(CoreNode).name == ""


def test_a_denial_names_its_fields_to_people_and_to_programs(server):
    cause = FieldCause("spec.group", 'must be the name of a Group, such as "rack-1"')
    s = server(check=lambda request: deny("the node is invalid", cause, warnings=["old field"]))
    _, answer = post(s, "/check", review())
    response = answer["response"]
    assert not response["allowed"]
    assert response["warnings"] == ["old field"]
    assert response["status"]["code"] == 422
    assert response["status"]["reason"] == "Invalid"
    assert "spec.group: must be the name" in response["status"]["message"]
    assert response["status"]["details"]["causes"] == [
        {"reason": "FieldValueInvalid", "field": "spec.group", "message": cause.message}
    ]


def test_a_denial_without_a_field_is_forbidden(server):
    s = server(check=lambda request: deny("not now"))
    _, answer = post(s, "/check", review())
    assert (answer["response"]["status"]["code"], answer["response"]["status"]["message"]) == (403, "not now")


def test_a_denial_may_leave_its_reason_to_the_message_and_still_name_fields(server):
    cause = FieldCause("spec.group", "is taken")
    s = server(check=lambda request: Decision(allowed=False, causes=[cause], code=403, reason=""))
    _, answer = post(s, "/check", review())
    status = answer["response"]["status"]
    assert (status["code"], status["message"]) == (403, "spec.group: is taken")
    assert "reason" not in status
    assert [entry["field"] for entry in status["details"]["causes"]] == ["spec.group"]


def test_a_handler_that_cannot_judge_yet_leaves_the_decision_to_the_failure_policy(server):
    def early(request):
        raise NotReadyError("nothing was listed yet")

    s = server(check=early)
    status, answer = post(s, "/check", review())
    assert status == 503
    assert "nothing was listed yet" in str(answer)
    assert s.metrics.registry.get_sample_value("controller_runtime_webhook_panics_total") == 0


def test_warnings_come_with_an_allowed_request_too(server):
    s = server(check=lambda request: allow("mind the gap"))
    _, answer = post(s, "/check", review())
    assert answer["response"] == {"uid": "r1", "allowed": True, "warnings": ["mind the gap"]}


def test_a_mutation_travels_as_an_encoded_json_patch(server):
    operations = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
    s = server(change=lambda request: mutate(operations))
    _, answer = post(s, "/change", review())
    assert answer["response"]["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(answer["response"]["patch"])) == operations


def test_an_object_that_cannot_be_read_is_denied_with_its_fields(server):
    s = server(check=lambda request: allow(request.decode(CoreNode).name))
    bad = {"metadata": {"name": "n1"}, "spec": {"taints": [{"key": 5, "effect": "x"}]}}
    _, answer = post(s, "/check", review(object=bad))
    (cause,) = answer["response"]["status"]["details"]["causes"]
    assert cause["field"] == "spec.taints[0].key"
    _, answer = post(s, "/check", review(object=None))
    assert "no object" in answer["response"]["status"]["message"]


def test_a_handler_with_a_bug_answers_500_and_is_counted(server):
    def broken(request):
        raise KeyError("bug")

    s = server(check=broken)
    with structlog.testing.capture_logs():
        status, _ = post(s, "/check", review())
    assert status == 500
    value = s.metrics.registry.get_sample_value
    assert value("controller_runtime_webhook_panics_total") == 1
    assert value("controller_runtime_webhook_requests_total", {"webhook": "/check", "code": "500"}) == 1
    assert value("controller_runtime_webhook_requests_in_flight", {"webhook": "/check"}) == 0


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"{", "not JSON"),
        (b"[]", "no AdmissionReview"),
        ({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1beta1"}, "v1beta1"),
        ({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"}, "no request"),
    ],
)
def test_what_is_no_review_is_refused_with_the_reason(server, body, text):
    status, answer = post(server(check=lambda request: allow()), "/check", body)
    assert status == 400
    assert text in answer


def test_an_unknown_path_is_not_found(server):
    assert post(server(), "/nowhere", review())[0] == 404


def test_a_review_that_is_too_large_is_refused_unread(server):
    s = server(check=lambda request: allow())
    request = urllib.request.Request(
        f"http://127.0.0.1:{s.port}/check", data=b"x", headers={"Content-Length": str(10**9)}, method="POST"
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=5)
    with caught.value:
        assert caught.value.code == 413


def test_paths_are_unique_and_absolute(server):
    s = server(check=lambda request: allow())
    for path in ("/check", "relative"):
        with pytest.raises(ValueError, match="path of a webhook"):
            s.register(path, lambda request: allow())


def test_field_paths_read_like_those_of_kubernetes():
    assert field_path(("spec", "volumes", 0, "name")) == "spec.volumes[0].name"


def test_readiness_follows_the_server_and_its_certificate():
    clock = FakeClock()
    certificates = MountedCertificates.__new__(MountedCertificates)
    server = WebhookServer("127.0.0.1:0", None, clock, Metrics())
    with pytest.raises(RuntimeError, match="does not serve"):
        server.check()
    stop = StopSignal()
    thread = threading.Thread(target=server.run, args=(stop,))
    thread.start()
    eventually(lambda: server._serving)
    server.check()
    server._certificates = certificates
    certificates.check = lambda: (_ for _ in ()).throw(CertificateError("expired"))
    with pytest.raises(CertificateError):
        server.check()
    stop.set()
    thread.join(5)


# --- certificates -----------------------------------------------------------------------------------------------------

DAY = timedelta(days=1)


def served_by(port, authority, name="localhost"):
    """The PEM certificate that a verifying client is shown."""
    context = ssl.create_default_context(cadata=authority.decode())
    connection = HTTPSConnection("127.0.0.1", port, timeout=5, context=context)
    connection._context.check_hostname = False
    try:
        connection.connect()
        return ssl.DER_cert_to_PEM_cert(connection.sock.getpeercert(binary_form=True)).strip()
    finally:
        connection.close()


def write_pair(directory, pair):
    (directory / "tls.key").write_bytes(pair.key)
    (directory / "tls.crt").write_bytes(pair.certificate)


def test_mounted_certificates_are_picked_up_without_a_restart(server, tmp_path):
    now = SystemClock().now()
    authority = make_authority("test", now, DAY)
    first, second = (issue(authority, ["localhost"], now, DAY) for _ in range(2))
    write_pair(tmp_path, first)
    clock = FakeClock(now)
    certificates = MountedCertificates(tmp_path, clock)
    stop = StopSignal()
    thread = threading.Thread(target=certificates.run, args=(stop,))
    thread.start()
    clock.wait_for_waiters()
    s = server(certificates, check=lambda request: allow())
    assert served_by(s.port, authority.certificate) == first.certificate.decode().strip()
    write_pair(tmp_path, second)
    clock.step(10)
    clock.wait_for_waiters()
    assert served_by(s.port, authority.certificate) == second.certificate.decode().strip()
    stop.set()
    thread.join(5)


def test_a_pair_that_is_half_written_leaves_the_old_one_in_use(tmp_path):
    now = SystemClock().now()
    authority = make_authority("test", now, DAY)
    good, other = (issue(authority, ["localhost"], now, DAY) for _ in range(2))
    metrics = Metrics()
    certificates = MountedCertificates(tmp_path, FakeClock(now), metrics)
    with pytest.raises(CertificateError, match="cannot be used"):
        certificates.load()
    with pytest.raises(CertificateError, match="no certificate yet"):
        certificates.context()
    write_pair(tmp_path, good)
    certificates.load()
    (tmp_path / "tls.crt").write_bytes(other.certificate)
    with pytest.raises(CertificateError):
        certificates.load()
    assert certificates.pair == good
    assert metrics.registry.get_sample_value("certwatcher_read_certificate_errors_total") == 2


def test_an_expired_certificate_is_not_ready(tmp_path):
    clock = FakeClock()
    authority = make_authority("test", clock.now(), DAY)
    write_pair(tmp_path, issue(authority, ["localhost"], clock.now(), DAY))
    certificates = MountedCertificates(tmp_path, clock)
    with pytest.raises(CertificateError, match="no certificate yet"):
        certificates.check()
    certificates.load()
    certificates.check()
    clock.step(2 * DAY)
    with pytest.raises(CertificateError, match="valid from"):
        certificates.check()


class Api:
    """Secrets and webhook configurations by name."""

    def __init__(self):
        self.stored = {}
        self.version = 0
        self.writes = []
        self.race = None

    def get(self, kind, name, namespace=None):
        if (kind, name) not in self.stored:
            raise NotFoundError("none", status=404)
        return kind.from_json(self.stored[(kind, name)])

    def create(self, obj):
        if self.race:
            race, self.race = self.race, None
            race()
        if (type(obj), obj.name) in self.stored:
            raise AlreadyExistsError("there", status=409)
        self._store(type(obj), obj.name, obj.to_json())

    def patch(self, kind, name, namespace, patch):
        body = self.stored[(kind, name)]
        if isinstance(patch, JsonPatch):
            for operation in patch.body:
                _, _, index, *_ = operation["path"].split("/")
                entry = body["webhooks"][int(index)]
                if operation["op"] == "test":
                    assert entry["name"] == operation["value"]
                else:
                    entry.setdefault("clientConfig", {})["caBundle"] = operation["value"]
            self._store(kind, name, body)
            return
        if patch.body["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise ConflictError("changed", status=409)
        self._store(kind, name, merge(body, patch.body))

    def _store(self, kind, name, body):
        self.version += 1
        self.writes.append((kind.__name__, name))
        body["metadata"]["resourceVersion"] = str(self.version)
        self.stored[(kind, name)] = body


@pytest.fixture
def managed():
    api, clock = Api(), FakeClock()
    api.stored[(ValidatingWebhookConfiguration, "hooks")] = {
        "metadata": {"name": "hooks", "resourceVersion": "0"},
        "webhooks": [{"name": "a.example", "clientConfig": {"service": {"name": "s"}}}, {"name": "b.example"}],
    }
    api.bundle = lambda: base64.b64decode(
        api.stored[(ValidatingWebhookConfiguration, "hooks")]["webhooks"][1]["clientConfig"]["caBundle"]
    )
    options = ManagedCertificatesOptions(
        namespace="ns", secret="certs", names=["svc.ns.svc", "127.0.0.1"], validating=["hooks"]
    )
    return api, clock, lambda: ManagedCertificates(api, clock, options)


def test_made_certificates_are_stored_injected_and_served(managed, server):
    api, _, make = managed
    certificates = make()
    certificates.ensure()
    assert api.writes == [("Secret", "certs"), ("ValidatingWebhookConfiguration", "hooks")]
    assert certificates.pair.names() == {"svc.ns.svc", "127.0.0.1"}
    certificates.check()
    api.writes.clear()
    certificates.ensure()
    assert api.writes == []


def test_the_api_server_trusts_what_is_served(managed, server):
    api, clock, make = managed
    clock.set(SystemClock().now())
    certificates = make()
    certificates.ensure()
    s = server(certificates, check=lambda request: allow())
    assert served_by(s.port, api.bundle()) == certificates.pair.certificate.decode().strip()


def test_replicas_share_one_authority(managed):
    api, _, make = managed
    one, two = make(), make()
    api.race = one.ensure
    two.ensure()
    assert one.pair == two.pair
    assert api.writes.count(("Secret", "certs")) == 1


def test_the_serving_certificate_is_renewed_after_two_thirds_of_its_life(managed):
    api, clock, make = managed
    certificates = make()
    certificates.ensure()
    first, bundle = certificates.pair, api.bundle()
    clock.step(59 * DAY)
    certificates.ensure()
    assert certificates.pair == first
    clock.step(2 * DAY)
    certificates.ensure()
    assert certificates.pair != first
    assert api.bundle() == bundle


def test_a_new_authority_is_trusted_beside_the_old_one_until_that_has_run_out(managed):
    api, clock, make = managed
    certificates = make()
    certificates.ensure()
    old = api.bundle()
    clock.step(2500 * DAY)
    certificates.ensure()
    assert api.bundle() != old
    assert api.bundle().endswith(old)
    clock.step(1200 * DAY)
    certificates.ensure()
    assert old not in api.bundle()


def test_a_secret_that_somebody_broke_is_made_anew(managed):
    api, _, make = managed
    make().ensure()
    (secret,) = [body for (kind, _), body in api.stored.items() if kind.__name__ == "Secret"]
    secret["data"]["tls.key"] = base64.b64encode(b"nonsense").decode()
    certificates = make()
    certificates.ensure()
    certificates.check()


def test_another_name_for_the_service_leads_to_another_certificate(managed):
    api, clock, make = managed
    make().ensure()
    options = ManagedCertificatesOptions(namespace="ns", secret="certs", names=["other.ns.svc"])
    certificates = ManagedCertificates(api, clock, options)
    certificates.ensure()
    assert "other.ns.svc" in certificates.pair.names()


def test_a_bundle_that_was_wiped_comes_back(managed):
    api, clock, make = managed
    certificates = make()
    stop = StopSignal()
    thread = threading.Thread(target=certificates.run, args=(stop,))
    thread.start()
    clock.wait_for_waiters()
    bundle = api.bundle()
    (hooks,) = [body for (kind, _), body in api.stored.items() if kind.__name__.startswith("Validating")]
    for webhook in hooks["webhooks"]:
        del webhook["clientConfig"]["caBundle"]
    clock.step(60)
    eventually(lambda: hooks["webhooks"][1].get("clientConfig", {}).get("caBundle"))
    assert api.bundle() == bundle
    stop.set()
    thread.join(5)


def test_no_private_key_stays_in_a_file(managed, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    _, _, make = managed
    make().ensure()
    assert list(tmp_path.iterdir()) == []
