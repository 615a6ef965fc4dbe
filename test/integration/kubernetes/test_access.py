"""RBAC, tokens and impersonation."""

import uuid

import pytest

from homelab_autoscaler.runtime.testing import eventually
from homelab_autoscaler.sandbox.status import ApiStatusError

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def rule(verbs, resources, group="", **more):
    return {"apiGroups": [group], "resources": resources.split(), "verbs": verbs.split(), **more}


@pytest.fixture
def user():
    return f"user-{uuid.uuid4().hex[:10]}"


@pytest.fixture
def grant(api, namespace, user):
    """Gives the user a role in the namespace."""

    def give(name, *rules):
        where = f"{RBAC}/namespaces/{namespace}"
        api.create(f"{where}/roles", {"metadata": {"name": name}, "rules": list(rules)})
        subject = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
        binding = {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
        api.create(f"{where}/rolebindings", binding)

    return give


def refused(action, text):
    with pytest.raises(ApiStatusError) as caught:
        action()
    assert (caught.value.code, caught.value.reason) == (403, "Forbidden")
    assert text in caught.value.status["message"]


def test_a_role_gives_its_verbs_in_its_namespace_and_a_binding_takes_them_back(
    control_plane, api, namespace, config_maps, user, grant, settles
):
    grant("reader", rule("get list", "configmaps"))
    reader = control_plane.api(user)
    assert settles(lambda: reader.list(config_maps), "the role counts")["items"] == []
    pods = f"/api/v1/namespaces/{namespace}/pods"
    for path in ("/api/v1/namespaces/kube-system/configmaps", "/api/v1/configmaps", pods):
        refused(lambda path=path: reader.list(path), f'User "{user}" cannot list resource')
    refused(lambda: reader.list(config_maps, watch=True), "cannot watch resource")
    api.delete(f"{RBAC}/namespaces/{namespace}/rolebindings/reader")

    eventually(lambda: reader.request("GET", config_maps).status == 403, 30, what="the role is taken back")


def test_a_right_on_status_is_no_right_on_the_object(control_plane, api, namespace, user, grant, settles):
    pods = f"/api/v1/namespaces/{namespace}/pods"
    api.create(pods, {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    grant("keeper", rule("patch", "pods/status"))
    keeper = control_plane.api(user)
    settles(lambda: keeper.patch(f"{pods}/p/status", {"status": {"phase": "Running"}}), "the role counts")
    change = {"metadata": {"labels": {"a": "b"}}}
    refused(lambda: keeper.patch(f"{pods}/p", change), 'cannot patch resource "pods" in')


def test_nobody_hands_out_rights_that_they_do_not_have(control_plane, namespace, user, grant, settles):
    grant("granter", rule("create", "roles", "rbac.authorization.k8s.io"), rule("get", "pods"))
    granter = control_plane.api(user)
    roles = f"{RBAC}/namespaces/{namespace}/roles"
    held = {"metadata": {"name": "same"}, "rules": [rule("get", "pods")]}
    settles(lambda: granter.create(roles, held), "the role counts")
    more = {"metadata": {"name": "x"}, "rules": [rule("*", "pods")]}
    refused(lambda: granter.create(roles, more), "attempting to grant RBAC permissions not currently held")


def test_tokens_say_who_asks_and_administrators_can_act_as_others(
    control_plane, wire, api, namespace, user, grant, settles
):
    path = f"/api/v1/namespaces/{namespace}/secrets"

    def asked(**headers):
        return wire.send("GET", path, **headers)[0]

    assert asked(Authorization="") == 403
    assert asked(Authorization="Bearer nonsense") == 401
    assert asked() == 200
    other = control_plane.api(user)
    assert other.request("GET", path).status == 403
    grant("lister", rule("list", "secrets"))
    settles(lambda: other.list(path), "the role counts")
    assert asked(Impersonate_User=user) == 200
    assert asked(Impersonate_User="nobody") == 403
    assert other.request("GET", path, headers={"Impersonate-User": "system:admin"}).status == 403
    assert wire.send("GET", "/healthz", Authorization="")[0] == 200


def test_a_service_account_is_in_the_groups_of_its_namespace(control_plane, api, namespace, settles):
    api.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "robot"}})
    robot = control_plane.api(f"system:serviceaccount:{namespace}:robot")
    path = f"/api/v1/namespaces/{namespace}/secrets"
    refused(lambda: robot.list(path), f'User "system:serviceaccount:{namespace}:robot" cannot list resource "secrets"')
    where = f"{RBAC}/namespaces/{namespace}"
    api.create(f"{where}/roles", {"metadata": {"name": "all"}, "rules": [rule("list", "secrets")]})
    subject = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": f"system:serviceaccounts:{namespace}"}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "all"}
    api.create(f"{where}/rolebindings", {"metadata": {"name": "all"}, "roleRef": reference, "subjects": [subject]})
    settles(lambda: robot.list(path), "the role counts for the group")
