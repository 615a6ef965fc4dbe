"""What writes and reads mean."""

import contextlib
from concurrent.futures import ThreadPoolExecutor

import pytest

from homelab_autoscaler.runtime.testing import eventually
from homelab_autoscaler.sandbox.status import ApiStatusError

HOLD = "example.dev/hold"


@contextlib.contextmanager
def refused(code, reason, text=""):
    with pytest.raises(ApiStatusError) as caught:
        yield caught
    assert (caught.value.code, caught.value.reason) == (code, reason), caught.value.status
    assert text in caught.value.status["message"]


def test_a_new_object_gets_its_system_fields_and_defaults(api, widgets, widget):
    created = api.create(widgets, widget(spec={}, labels={"a": "b"}))
    metadata = created["metadata"]
    assert (metadata["generation"], metadata["labels"], created["spec"]) == (1, {"a": "b"}, {"size": 1})
    assert metadata["uid"]
    assert metadata["resourceVersion"].isdigit()
    assert metadata["creationTimestamp"].endswith("Z")
    assert "." not in metadata["creationTimestamp"]


def test_a_stale_write_is_a_conflict_and_changes_nothing(api, widgets, widget):
    old = api.create(widgets, widget())
    api.patch(f"{widgets}/w", {"spec": {"size": 4}})
    with refused(409, "Conflict", "the object has been modified"):
        api.update(f"{widgets}/w", {**old, "spec": {"size": 9}})
    with refused(409, "Conflict"):
        stale = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "spec": {"size": 9}}
        api.patch(f"{widgets}/w", stale)
    assert api.get(f"{widgets}/w")["spec"]["size"] == 4


def test_status_and_spec_are_written_through_their_own_paths(api, widgets, widget):
    api.create(widgets, {**widget(), "status": {"phase": "Ready"}})
    assert "status" not in api.get(f"{widgets}/w")
    changed = api.patch(f"{widgets}/w/status", {"status": {"phase": "Ready"}, "spec": {"size": 9}})
    assert (changed["status"], changed["spec"]["size"], changed["metadata"]["generation"]) == ({"phase": "Ready"}, 3, 1)
    changed = api.patch(f"{widgets}/w", {"status": {"phase": "Failed"}, "spec": {"size": 4}})
    assert (changed["status"], changed["spec"]["size"], changed["metadata"]["generation"]) == ({"phase": "Ready"}, 4, 2)


def test_a_write_that_changes_nothing_makes_no_new_version(api, widgets, widget):
    created = api.create(widgets, widget())
    assert api.patch(f"{widgets}/w", {"spec": {"size": 3}}) == created
    assert api.update(f"{widgets}/w", created) == created
    api.create(widgets, widget("last"))
    start = created["metadata"]["resourceVersion"]
    events = api.watch(widgets, start, until=lambda event: event["object"]["metadata"]["name"] == "last")
    assert [event["type"] for event in events] == ["ADDED"]


def test_a_held_object_stays_until_its_finalizers_are_gone(api, widgets, widget):
    api.create(widgets, widget(finalizers=[HOLD]))
    deleted = api.delete(f"{widgets}/w")
    assert (deleted["metadata"]["generation"], deleted["metadata"]["deletionGracePeriodSeconds"]) == (2, 0)
    with refused(422, "Invalid", "no new finalizers can be added"):
        api.patch(f"{widgets}/w", {"metadata": {"finalizers": [HOLD, "example.dev/new"]}})
    with refused(409, "AlreadyExists", "object is being deleted"):
        api.create(widgets, widget())
    api.patch(f"{widgets}/w", {"metadata": {"finalizers": None}})
    with refused(404, "NotFound", 'widgets.test.example.dev "w" not found'):
        api.get(f"{widgets}/w")


def test_a_deletion_with_another_uid_deletes_nothing(api, widgets, widget):
    api.create(widgets, widget())
    with refused(409, "Conflict", "the UID in the precondition"):
        api.delete(f"{widgets}/w", {"preconditions": {"uid": "another"}})
    api.get(f"{widgets}/w")


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        ({"size": 200}, "spec.size", "FieldValueInvalid"),
        ({"size": "x"}, "spec.size", "FieldValueTypeInvalid"),
        ({"parts": [{"value": "1"}]}, "spec.parts[0].name", "FieldValueRequired"),
        ({"parts": [{"name": "a"}, {"name": "a"}]}, "spec.parts[1]", "FieldValueDuplicate"),
        ({"low": 2, "high": 1}, "spec", "FieldValueInvalid"),
    ],
)
def test_a_broken_schema_or_rule_is_a_cause_with_its_field(api, widgets, widget, spec, field, reason):
    with refused(422, "Invalid") as caught:
        api.create(widgets, widget(spec=spec))
    causes = [(cause["reason"], cause["field"]) for cause in caught.value.status["details"]["causes"]]
    assert causes[0] == (reason, field)


def test_a_transition_rule_holds_on_updates_only(api, widgets, widget):
    api.create(widgets, widget(spec={"fixed": "a"}))
    with refused(422, "Invalid", 'spec.fixed: Invalid value: "b": fixed is immutable'):
        api.patch(f"{widgets}/w", {"spec": {"fixed": "b"}})


def test_unknown_fields_are_dropped_or_refused_as_asked(api, widgets, widget):
    odd = widget(spec={"odd": 1, "free": {"any": [1]}})
    with refused(400, "BadRequest", 'strict decoding error: unknown field "spec.odd"'):
        api.create(widgets, odd, fieldValidation="Strict")
    assert api.create(widgets, odd)["spec"] == {"size": 1, "free": {"any": [1]}}
    with refused(400, "BadRequest", 'unknown field "odd"'):
        api.create("/api/v1/namespaces", {"metadata": {"name": "x"}, "odd": 1}, fieldValidation="Strict")


def test_server_side_apply_shares_takes_and_gives_back_fields(api, widgets, widget):
    def apply(manager, spec, **query):
        return api.patch(
            f"{widgets}/w", widget(spec=spec), "application/apply-patch+yaml", fieldManager=manager, **query
        )

    apply("one", {"size": 3, "parts": [{"name": "a", "value": "1"}]})
    both = apply("two", {"parts": [{"name": "b", "value": "2"}]})
    assert [part["name"] for part in both["spec"]["parts"]] == ["a", "b"]
    with refused(409, "Conflict", 'conflict with "one": .spec.size'):
        apply("two", {"size": 4})
    assert apply("two", {"size": 4}, force=True)["spec"] == {"size": 4, "parts": [{"name": "a", "value": "1"}]}


def test_pages_show_one_snapshot_whatever_happens_in_between(api, widgets, widget):
    for name in "bdf":
        api.create(widgets, widget(name))
    first = api.list(widgets, limit=1)
    api.create(widgets, widget("a"))
    api.delete(f"{widgets}/d")
    rest = api.list(widgets, **{"continue": first["metadata"]["continue"]})
    assert [item["metadata"]["name"] for item in first["items"] + rest["items"]] == ["b", "d", "f"]
    assert rest["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


def test_a_selector_watch_shows_entering_and_leaving_objects(api, widgets, widget):
    start = api.list(widgets)["metadata"]["resourceVersion"]
    api.create(widgets, widget(labels={"zone": "b"}))
    for zone in "aca":
        api.patch(f"{widgets}/w", {"metadata": {"labels": {"zone": zone}}})
    api.delete(f"{widgets}/w")

    events = api.watch(widgets, start, labelSelector="zone=a", timeoutSeconds=1)
    seen = [(event["type"], event["object"]["metadata"]["labels"]["zone"]) for event in events]
    assert seen == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a"), ("DELETED", "a")]


def test_events_of_either_api_are_one_object(api, namespace):
    about = {"kind": "Pod", "name": "p", "namespace": namespace}
    api.create(
        f"/api/v1/namespaces/{namespace}/events",
        {"metadata": {"name": "e"}, "involvedObject": about, "reason": "R", "message": "text", "count": 2},
    )
    found = api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events/e")
    assert (found["note"], found["regarding"]["name"], found["deprecatedCount"]) == ("text", "p", 2)


def test_a_pod_on_a_node_leaves_gracefully_and_a_budget_can_refuse_its_eviction(api, namespace):
    pods = f"/api/v1/namespaces/{namespace}/pods"
    spec = {"nodeName": "n1", "containers": [{"name": "main", "image": "example.dev/none"}]}
    api.create(pods, {"metadata": {"name": "p", "labels": {"app": "x"}}, "spec": spec})
    api.patch(f"{pods}/p/status", {"status": {"phase": "Running"}})
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    selector = {"matchLabels": {"app": "x"}}
    api.create(budgets, {"metadata": {"name": "b"}, "spec": {"selector": selector, "minAvailable": 1}})
    status = {"observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}
    api.patch(f"{budgets}/b/status", {"status": status})
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}}
    api.patch(f"{pods}/p/status", {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
    with refused(429, "TooManyRequests", "would violate the pod's disruption budget"):
        api.create(f"{pods}/p/eviction", eviction)
    api.patch(f"{budgets}/b/status", {"status": {"disruptionsAllowed": 1}})
    api.create(f"{pods}/p/eviction", eviction)
    assert api.get(f"{pods}/p")["metadata"]["deletionGracePeriodSeconds"] == 30
    assert api.get(f"{budgets}/b")["status"]["disruptionsAllowed"] == 0


def test_a_job_gets_its_selector_and_a_finished_one_stays_finished(api, namespace):
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "example.dev/none"}]}}
    job = api.create(jobs, {"metadata": {"name": "j"}, "spec": {"template": template}})
    uid = job["metadata"]["uid"]
    assert job["spec"]["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    with refused(422, "Invalid", "spec.completions"):
        api.patch(f"{jobs}/j", {"spec": {"completions": 2}})
    with refused(422, "Invalid", "without the SuccessCriteriaMet=true condition"):
        api.patch(f"{jobs}/j/status", {"status": {"conditions": [{"type": "Complete", "status": "True"}]}})
    conditions = [{"type": kind, "status": "True"} for kind in ("SuccessCriteriaMet", "Complete")]
    times = {"startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:01:00Z"}
    api.patch(f"{jobs}/j/status", {"status": {**times, "succeeded": 1, "conditions": conditions}})
    with refused(422, "Invalid", "cannot disable the terminal Complete=True condition"):
        api.patch(f"{jobs}/j/status", {"status": {"conditions": []}})


def test_parallel_writers_of_one_version_have_one_winner(api, widgets, widget):
    seen = api.create(widgets, widget(spec={"size": 0}))

    def write(size):
        try:
            api.update(f"{widgets}/w", {**seen, "spec": {"size": size}})
        except ApiStatusError as error:
            return error.code
        return 200

    with ThreadPoolExecutor(8) as pool:
        outcomes = sorted(pool.map(write, range(1, 9)))
    assert outcomes == [200] + [409] * 7


def test_a_terminating_namespace_takes_no_new_content(api, namespace):
    api.delete(f"/api/v1/namespaces/{namespace}")
    with refused(403, "Forbidden", "because it is being terminated"):
        api.create(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "late"}})
    space = api.get(f"/api/v1/namespaces/{namespace}")
    assert space["status"]["phase"] == "Terminating"
    api.update(f"/api/v1/namespaces/{namespace}/finalize", {**space, "spec": {"finalizers": []}})
    with refused(404, "NotFound"):
        api.get(f"/api/v1/namespaces/{namespace}")


def test_a_definition_takes_its_objects_with_it_and_waits_for_held_ones(api, define, namespace):
    made = define("dooms", "Doom", {"type": "object"}, group="doom.example.dev")
    crd = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{made['metadata']['name']}"
    dooms = f"/apis/doom.example.dev/v1/namespaces/{namespace}/dooms"
    frame = {"apiVersion": "doom.example.dev/v1", "kind": "Doom"}
    api.create(dooms, {**frame, "metadata": {"name": "free"}})
    api.create(dooms, {**frame, "metadata": {"name": "held", "finalizers": [HOLD]}})
    api.delete(crd)
    eventually(lambda: [item["metadata"]["name"] for item in api.list(dooms)["items"]] == ["held"], 60)
    assert "deletionTimestamp" in api.get(f"{dooms}/held")["metadata"]
    api.patch(f"{dooms}/held", {"metadata": {"finalizers": None}})
    eventually(lambda: api.request("GET", crd).status == 404, 60, what="the definition is gone")

    def unknown():
        answer = api.request("GET", dooms)
        return (answer.status, answer.text) == (404, "404 page not found\n")

    eventually(unknown, 60, what="its path is unknown")


def test_an_empty_body_of_a_deletion_hides_the_dry_run_of_its_query(api, config_maps):
    api.create(config_maps, {"metadata": {"name": "kept"}})
    api.request("DELETE", f"{config_maps}/kept?dryRun=All")
    api.get(f"{config_maps}/kept")
    api.request("DELETE", f"{config_maps}/kept?dryRun=All", body={})
    with refused(404, "NotFound"):
        api.get(f"{config_maps}/kept")


def test_quantities_are_stored_in_their_shortest_form(api, namespace):
    written = {"cpu": "1000m", "memory": "1024Mi", "example.dev/a": "0.5", "example.dev/b": "2147483648"}
    container = {"name": "c", "image": "i", "resources": {"limits": written}}
    body = {"metadata": {"name": "p"}, "spec": {"containers": [container]}}
    limits = {"cpu": "1", "memory": "1Gi"}
    with refused(422, "Invalid", "must be an integer"):
        api.create(f"/api/v1/namespaces/{namespace}/pods", body)
    container["resources"]["limits"] = {key: written[key] for key in limits}
    pod = api.create(f"/api/v1/namespaces/{namespace}/pods", body)
    assert pod["spec"]["containers"][0]["resources"] == {"limits": limits, "requests": limits}


def test_a_manifest_can_replace_the_pod_that_it_made(api, namespace):
    pods = f"/api/v1/namespaces/{namespace}/pods"
    spec = {"containers": [{"name": "c", "image": "one"}]}
    api.create(pods, {"metadata": {"name": "p"}, "spec": spec})
    spec["containers"][0]["image"] = "two"
    replaced = api.update(f"{pods}/p", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    assert (replaced["spec"]["containers"][0]["image"], replaced["spec"]["priority"]) == ("two", 0)
    with refused(422, "Invalid", "may not add or remove containers"):
        more = {"containers": [*spec["containers"], {"name": "d", "image": "i"}]}
        api.patch(f"{pods}/p", {"spec": more})


def test_an_object_without_its_name_is_no_update_of_it(api, config_maps):
    api.create(config_maps, {"metadata": {"name": "c"}})
    with refused(400, "BadRequest", "name must be provided"):
        api.update(f"{config_maps}/c", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})


@pytest.mark.parametrize(
    ("kind", "patch", "code", "reason"),
    [
        ("merge-patch", {"data": {"k": 1}}, 422, "Invalid"),
        ("merge-patch", {"kind": "Secret"}, 422, "Invalid"),
        ("strategic-merge-patch", {"data": {"k": 1}}, 422, "Invalid"),
        ("json-patch", [1], 400, "BadRequest"),
        ("json-patch", [{"op": "add", "path": "/data", "value": "x"}], 422, "Invalid"),
    ],
)
def test_a_patch_that_makes_no_object_of_the_kind_is_refused(api, config_maps, kind, patch, code, reason):
    api.create(config_maps, {"metadata": {"name": "c"}})
    with refused(code, reason):
        api.patch(f"{config_maps}/c", patch, f"application/{kind}+json")


@pytest.mark.parametrize("spec", [{"size": "x"}, {"parts": "x"}, {"free": 1}, {"odd": 1}])
def test_a_configuration_that_does_not_fit_its_schema_cannot_be_applied(api, widgets, widget, spec):
    with refused(500, ""):
        api.patch(f"{widgets}/w", widget(spec=spec), "application/apply-patch+yaml", fieldManager="one", force=True)
