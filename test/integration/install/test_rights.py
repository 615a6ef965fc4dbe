"""The shipped roles, judged by a whole manager that lives under them through everything it ever does."""

import pytest
from installed.world import MANAGER_USER, OWN, RESTRICTED

from homelab_api import names
from homelab_api.core import Job, Pod, Secret
from homelab_api.v2alpha1 import Node, NodeReclaim
from homelab_autoscaler.claim.names import claim_name_of
from homelab_autoscaler.install.rights import RIGHTS, Scope
from homelab_autoscaler.install.roles import POOLS_NAMESPACE
from homelab_autoscaler.lifecycle import events
from homelab_autoscaler.provider.pb import externalgrpc_pb2 as pb
from homelab_autoscaler.provider.pb import externalgrpc_pb2_grpc as pb_grpc
from homelab_autoscaler.runtime import MergePatch, NotFoundError
from homelab_autoscaler.runtime.recorder.model import CoreEvent
from homelab_autoscaler.sandbox.apiserver import Fault

pytestmark = pytest.mark.timeout(400)
NAMESPACES = {
    Scope.POOLS: POOLS_NAMESPACE,
    Scope.OWN: OWN,
    Scope.NODE_LEASES: names.NODE_LEASE_NAMESPACE,
}


def missing(client, kind, name, namespace=POOLS_NAMESPACE):
    try:
        client.get(kind, name, namespace)
    except NotFoundError:
        return True
    return False


def unused(decisions):
    """Verbs of the inventory that no request needed, as `scope: verb resource (name)`."""
    found = []
    for right in RIGHTS:
        for verb in right.verbs:
            for name in right.names or ("",):
                used = any(
                    (asked.verb, asked.group, asked.resource) == (verb, right.group, right.resource)
                    and name in ("", asked.name)
                    and (right.scope is Scope.CLUSTER or asked.namespace == NAMESPACES[right.scope])
                    for asked in decisions
                )
                if not used:
                    found.append(f"{right.scope}: {verb} {right.resource} {name}".strip())
    return found


def foreign_job(installed, name):
    """A Job that has the name of the manager's next one and is somebody else's; it does not run yet."""
    container = {"name": "c", "image": "local", "command": ["true"], "securityContext": RESTRICTED}
    pod = {"restartPolicy": "Never", "tolerations": [{"operator": "Exists"}], "containers": [container]}
    body = {"metadata": {"name": name}, "spec": {"suspend": True, "template": {"spec": pod}}}
    installed.client.create_json(Job, body, POOLS_NAMESPACE)


def run_work(installed, node):
    """Two pods on the machine, one of which a budget keeps there."""
    for name in ("free", "kept"):
        container = {"name": "c", "image": "local", "command": ["sleep", "600"]}
        body = {
            "metadata": {"name": name, "namespace": "default", "labels": {"work": name}},
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [container]},
        }
        installed.client.create_json(Pod, body, "default")
    installed.kubectl("create", "poddisruptionbudget", "kept", "--selector=work=kept", "--min-available=1")


def taken_events(installed):
    listed = installed.client.list(CoreEvent, POOLS_NAMESPACE).items
    return max((event.count or 0 for event in listed if event.reason == events.JOB_NAME_TAKEN), default=0)


def test_a_manager_is_refused_nothing_under_its_roles_and_uses_every_right_in_them(inspected):
    pool = inspected.pool()
    pool.create_group(drain={"timeout": "1s", "force": True})
    machine = inspected.machine(pool, announce_shutdown=True, stop_seconds=0.5)
    foreign = f"{claim_name_of(pool.slot(machine))}-startup"
    foreign_job(inspected, foreign)
    with inspected.manager(), inspected.autoscaler() as channel:
        autoscaler = pb_grpc.CloudProviderStub(channel)
        autoscaler.NodeGroupIncreaseSize(pb.NodeGroupIncreaseSizeRequest(delta=1, id="pool"))
        pool.until("the foreign Job is complained about again", lambda: taken_events(inspected) > 1)
        inspected.client.patch(Job, foreign, POOLS_NAMESPACE, MergePatch({"spec": {"suspend": False}}))
        pool.until("on", lambda: [claim.phase for claim in pool.claims()] == ["ready"])

        node = pool.node(f"node-{machine}")
        run_work(inspected, node.name)
        told = pb.ExternalGrpcNode(name=node.name, providerID=node.spec.provider_id)
        autoscaler.NodeGroupDeleteNodes(pb.NodeGroupDeleteNodesRequest(nodes=[told], id="pool"))
        pool.until("off, and its node object gone", lambda: pool.node(node.name) is None)
        assert inspected.commands(machine) == ["on", "off"]

        inspected.kubectl(
            "create", "rolebinding", "owner", f"--namespace={POOLS_NAMESPACE}", "--user=owner",
            "--clusterrole=homelab-autoscaler-owner",
        )  # fmt: skip
        reclaim = {"metadata": {"name": machine}, "spec": {"slotRef": {"name": machine}, "source": "Manual"}}
        inspected.acting_as("owner").create_json(NodeReclaim, reclaim, POOLS_NAMESPACE)
        inspected.client.delete(Node, machine, POOLS_NAMESPACE)
        pool.until("the reclaim ended with its slot", lambda: missing(inspected.client, NodeReclaim, machine))
    # An API server that streams no lists, as older ones do, for the one kind that is listed nowhere else.
    inspected.add_fault(Fault(kind="error", code=422, verb="watch", resource="/nodes", user=MANAGER_USER, count=1))
    # A new authority, and new names: both certificates are made anew and stored over the old ones.
    inspected.client.delete(Secret, "homelab-autoscaler-grpc-ca", OWN)
    with inspected.manager("--webhook-host=admission.example"), inspected.autoscaler():
        pass

    assert sorted({str(asked) for asked in inspected.decisions if not asked.allowed}) == []
    assert unused(inspected.decisions) == []
