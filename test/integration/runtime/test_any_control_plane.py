"""The runtime against an API server, embedded or real."""

import base64
import threading

import pytest

from homelab_api.core import CoreNode, Job, Lease, Pod
from homelab_api.meta import ObjectMeta
from homelab_autoscaler.runtime import (
    AlreadyExistsError,
    ApplyPatch,
    BadRequestError,
    ConflictError,
    ControllerBuilder,
    InvalidError,
    JsonPatch,
    LeaderElectionOptions,
    MergePatch,
    NotFoundError,
    Result,
    StopSignal,
    StrategicMergePatch,
    SystemClock,
)
from homelab_autoscaler.runtime.cache import Cache, ReflectorOptions
from homelab_autoscaler.runtime.client import Transport
from homelab_autoscaler.runtime.metrics import Metrics
from homelab_autoscaler.runtime.recorder import CoreEvent, EventV1
from homelab_autoscaler.runtime.testing import eventually
from homelab_autoscaler.runtime.webhook import (
    FieldCause,
    ManagedCertificates,
    ManagedCertificatesOptions,
    WebhookServer,
    allow,
    deny,
)
from homelab_autoscaler.runtime.webhook.model import ValidatingWebhookConfiguration


def job(name, namespace, **labels):
    template = {
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "registry.example/image"}],
        }
    }
    return Job.from_json(
        {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": {"template": template}}
    )


def pod_body(name, namespace, **labels):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"containers": [{"name": "c", "image": "registry.example/image"}]},
    }


# --- client -----------------------------------------------------------------------------------------------------------


def test_an_object_is_created_read_changed_and_deleted(client, namespace):
    created = client.create(job("j", namespace, step="one"))
    assert created.uid
    assert client.get(Job, "j", namespace).metadata.labels["step"] == "one"
    changed = client.patch(Job, "j", namespace, MergePatch({"metadata": {"labels": {"step": "two"}}}))
    assert changed.metadata.labels["step"] == "two"
    client.delete(Job, "j", namespace, uid=created.uid, propagation="Background")
    with pytest.raises(NotFoundError):
        client.get(Job, "j", namespace)


def test_a_name_that_is_taken_and_a_name_that_is_free_are_told_apart(client, namespace):
    client.create(job("j", namespace))
    with pytest.raises(AlreadyExistsError):
        client.create(job("j", namespace))
    with pytest.raises(NotFoundError):
        client.delete(Job, "other", namespace)


def test_an_object_that_breaks_its_schema_is_refused_with_its_fields(client, namespace):
    with pytest.raises(InvalidError) as caught:
        client.create(Job.from_json({"metadata": {"name": "Not_A_Name", "namespace": namespace}}))
    assert any(field == "metadata.name" for _, field, _ in caught.value.causes())


def test_every_sort_of_patch_works_on_a_built_in_kind(client, unique):
    client.create(CoreNode(metadata=ObjectMeta(name=unique)))
    client.patch(CoreNode, unique, None, MergePatch({"metadata": {"labels": {"a": "1"}}}))
    client.patch(CoreNode, unique, None, StrategicMergePatch({"metadata": {"labels": {"b": "2"}}}))
    client.patch(CoreNode, unique, None, JsonPatch([{"op": "add", "path": "/metadata/labels/c", "value": "3"}]))
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": unique, "labels": {"d": "4"}}}
    node = client.patch(CoreNode, unique, None, ApplyPatch(body, field_manager="applier"))
    assert {key: node.metadata.labels[key] for key in "abcd"} == {"a": "1", "b": "2", "c": "3", "d": "4"}
    without = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": unique}}
    node = client.patch(CoreNode, unique, None, ApplyPatch(without, field_manager="applier"))
    assert "d" not in node.metadata.labels
    client.delete(CoreNode, unique)


def test_applying_a_field_of_another_manager_conflicts_unless_forced(client, unique):
    client.create(CoreNode(metadata=ObjectMeta(name=unique)))

    def applied(value, manager, **options):
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": unique, "labels": {"x": value}}}
        return client.patch(CoreNode, unique, None, ApplyPatch(body, field_manager=manager, **options))

    applied("1", "one")
    with pytest.raises(ConflictError):
        applied("2", "two")
    assert applied("2", "two", force=True).metadata.labels["x"] == "2"
    client.delete(CoreNode, unique)


def test_preconditions_protect_another_object_of_the_same_name(client, namespace):
    first = client.create(job("j", namespace))
    client.delete(Job, "j", namespace, propagation="Background")
    second = client.create(job("j", namespace))
    with pytest.raises(ConflictError):
        client.delete(Job, "j", namespace, uid=first.uid)
    with pytest.raises(ConflictError):
        client.patch(
            Job, "j", namespace, MergePatch({"metadata": {"resourceVersion": "1", "labels": {"sneaky": "yes"}}})
        )
    assert client.get(Job, "j", namespace).uid == second.uid


def test_a_status_is_written_once_and_not_again_without_a_change(client, unique):
    node = client.create(CoreNode(metadata=ObjectMeta(name=unique)))
    written = client.patch_status(node, {"capacity": {"cpu": "4"}})
    assert written.metadata.resource_version != node.metadata.resource_version
    assert client.patch_status(written, {"capacity": {"cpu": "4"}}) is written
    with pytest.raises(ConflictError):
        client.patch_status(node, {"capacity": {"cpu": "8"}}, resource_version=node.metadata.resource_version)
    client.delete(CoreNode, unique)


def test_a_long_list_comes_in_pages(client, namespace):
    for number in range(7):
        client.create(job(f"j{number}", namespace))
    path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    pages = list(client._pages(path, {"limit": "3"}))
    assert sum(len(page["items"]) for page in pages) == 7
    assert len(client.list(Job, namespace).items) == 7
    assert client.list(Job, namespace, field_selector="metadata.name=j3").items[0].name == "j3"


def test_an_eviction_ends_the_pod_and_a_wrong_uid_does_not(client, namespace):
    pod = client.create_json(Pod, pod_body("p", namespace), namespace)
    other = Pod(metadata=ObjectMeta(name="p", namespace=namespace, uid="00000000-0000-0000-0000-000000000000"))
    try:
        with pytest.raises(ConflictError):
            client.evict(other)
        client.evict(pod, grace_period=0)
    except BadRequestError:
        # A server from before 1.22 does not know this version of the Eviction.
        assert client.get(Pod, "p", namespace).uid == pod.uid
        return
    with pytest.raises(NotFoundError):
        client.get(Pod, "p", namespace)


# --- cache ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("streaming", [True, False])
def test_the_cache_follows_the_server(control_plane, client, namespace, streaming):
    client.create(job("before", namespace))
    transport = Transport(control_plane.config, SystemClock())
    cache = Cache(transport, SystemClock(), options=ReflectorOptions(streaming_list=streaming))
    informer = cache.informer(
        Job, namespace=namespace, indexers={"step": lambda j: [j.metadata.labels.get("step", "")]}
    )
    stop = StopSignal()
    thread = threading.Thread(target=cache.run, args=(stop,))
    thread.start()
    try:
        assert informer.wait_for_sync(stop, 30)
        assert [j.name for j in informer.lister.list()] == ["before"]
        client.create(job("after", namespace, step="one"))
        eventually(lambda: [j.name for j in informer.lister.by_index("step", "one")] == ["after"])
        client.patch(Job, "after", namespace, MergePatch({"metadata": {"labels": {"step": "two"}}}))
        eventually(lambda: informer.lister.by_index("step", "two"))
        assert informer.lister.by_index("step", "one") == []
        client.delete(Job, "after", namespace, propagation="Background")
        eventually(lambda: informer.lister.get("after", namespace) is None)
    finally:
        stop.set()
        thread.join(10)
        transport.close()
    assert not thread.is_alive()


# --- controller and manager -------------------------------------------------------------------------------------------


class Mark:
    """Labels every Job it is asked about, and tells it."""

    def __init__(self, manager):
        self.manager = manager
        self.jobs = manager.cache.lister(Job)
        self.passes = []

    def reconcile(self, request):
        self.passes.append(request)
        found = self.jobs.get(request.name, request.namespace)
        if found is not None and "marked" not in found.metadata.labels:
            patch = MergePatch({"metadata": {"labels": {"marked": "yes"}}})
            self.manager.client.patch(Job, found.name, found.namespace, patch)
            self.manager.recorder.event(found, "Normal", "Marked", "the Job is marked")
        return Result()


def marking(manager_for, config, namespace, **options):
    running = manager_for(config, **options)
    manager = running.manager
    manager.cache.informer(Job, namespace=namespace)
    mark = Mark(manager)
    ControllerBuilder(manager, "mark").for_(Job, namespace=namespace).with_options(workers=2).complete(mark)
    running.mark = mark
    return running


@pytest.mark.parametrize("events_api", ["core", "events.k8s.io"])
def test_a_controller_brings_objects_to_where_they_should_be(control_plane, client, namespace, manager_for, events_api):
    client.create(job("before", namespace))
    running = marking(manager_for, control_plane.config, namespace, events_api=events_api).start()
    client.create(job("after", namespace))
    eventually(lambda: all("marked" in j.metadata.labels for j in client.list(Job, namespace).items))
    eventually(lambda: len(client.list(CoreEvent, namespace).items) >= 2)
    events = [e for e in client.list(CoreEvent, namespace).items if e.reason == "Marked"]
    assert {e.involved_object.name for e in events} == {"before", "after"}
    seen = {e.regarding.name for e in client.list(EventV1, namespace).items if e.reason == "Marked"}
    assert seen == {"before", "after"}
    assert running.end() is None


def test_each_object_is_written_once(control_plane, client, namespace, manager_for):
    running = marking(manager_for, control_plane.config, namespace).start()
    names = [f"j{number}" for number in range(20)]
    for name in names:
        client.create(job(name, namespace))
    eventually(lambda: all("marked" in j.metadata.labels for j in client.list(Job, namespace).items))
    eventually(lambda: running.manager.recorder.wait_until_written(5))
    events = [e for e in client.list(CoreEvent, namespace).items if e.reason == "Marked"]
    assert sorted(e.involved_object.name for e in events) == sorted(names)
    assert {e.count for e in events} == {1}


def test_the_second_manager_leads_when_the_first_has_stopped(control_plane, client, namespace, manager_for):
    def candidate():
        election = LeaderElectionOptions(name="lock", namespace=namespace, retry_period=0.2)
        return marking(manager_for, control_plane.config, namespace, leader_election=election)

    first = candidate().start()
    eventually(first.manager.leadership.is_leader)
    second = candidate().start()
    client.create(job("one", namespace))
    eventually(lambda: "marked" in client.get(Job, "one", namespace).metadata.labels)
    assert second.mark.passes == []
    assert first.end() is None
    assert client.get(Lease, "lock", namespace).spec.holder_identity in {"", second.manager.leadership.identity}
    eventually(second.manager.leadership.is_leader)
    client.create(job("two", namespace))
    eventually(lambda: "marked" in client.get(Job, "two", namespace).metadata.labels)
    assert second.manager.leadership.transitions == first.manager.leadership.transitions + 1


def test_no_thread_outlives_its_manager(control_plane, namespace, manager_for):
    before = set(threading.enumerate())
    running = marking(manager_for, control_plane.config, namespace, health_address="127.0.0.1:0").start()
    eventually(lambda: any(thread.name.startswith("mark/worker") for thread in threading.enumerate()))
    running.end()
    eventually(lambda: {thread for thread in threading.enumerate() if thread.is_alive()} <= before)


# --- webhooks ---------------------------------------------------------------------------------------------------------


def test_a_webhook_with_made_certificates_denies_by_field(control_plane, client, namespace, unique):
    metrics = Metrics()
    clock = SystemClock()
    options = ManagedCertificatesOptions(
        namespace=namespace, secret="webhook", names=["127.0.0.1", "localhost"], validating=[unique]
    )
    certificates = ManagedCertificates(client, clock, options)
    server = WebhookServer("127.0.0.1:0", certificates, clock, metrics)

    def check(request):
        labels = request.decode(Job).metadata.labels
        if labels.get("allowed") != "yes":
            return deny("not so", FieldCause("metadata.labels[allowed]", 'must be "yes"'))
        return allow("think twice")

    server.register("/check", check)
    stop = StopSignal()
    thread = threading.Thread(target=server.run, args=(stop,))
    thread.start()
    webhook = {
        "name": "check.test.example",
        "clientConfig": {"url": f"https://127.0.0.1:{server.port}/check"},
        "rules": [{"apiGroups": ["batch"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["jobs"]}],
        "namespaceSelector": {},
        "objectSelector": {"matchLabels": {"checked": unique}},
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 5,
    }
    client.create_json(
        ValidatingWebhookConfiguration,
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": unique},
            "webhooks": [webhook],
        },
        None,
    )
    try:
        certificates.ensure()
        stored = client.get(ValidatingWebhookConfiguration, unique).webhooks[0]
        assert b"BEGIN CERTIFICATE" in base64.b64decode(stored["clientConfig"]["caBundle"])

        def denied():
            try:
                client.create(job("bad", namespace, checked=unique))
            except InvalidError as error:
                return error
            client.delete(Job, "bad", namespace, propagation="Background")
            return None

        eventually(denied, 20, what="the webhook being called")
        error = denied()
        assert 'metadata.labels[allowed]: must be "yes"' in error.message
        assert error.causes()[0][1] == "metadata.labels[allowed]"
        assert client.create(job("good", namespace, checked=unique, allowed="yes")).name == "good"
    finally:
        client.delete(ValidatingWebhookConfiguration, unique)
        stop.set()
        thread.join(10)
