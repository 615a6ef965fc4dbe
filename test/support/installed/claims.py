"""Claims as a person writes them."""

from homelab_api import names
from homelab_api.v2alpha1 import NodeClaim
from homelab_autoscaler.install.roles import POOLS_NAMESPACE

API = f"{names.GROUP}/v2alpha1"


def claim_body(name, slot, call="Manual", group="pool"):
    deadline = "2099-01-01T00:00:00Z"
    spec = {"slotRef": {"name": slot}, "call": call, "group": group, "deadlineAt": deadline}
    return {"apiVersion": API, "kind": "NodeClaim", "metadata": {"name": name}, "spec": spec}


def create_claim(client, *arguments, **options):
    return client.create_json(NodeClaim, claim_body(*arguments, **options), POOLS_NAMESPACE)
