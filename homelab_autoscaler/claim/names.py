"""Names of claims, and of everything whose name is limited: deterministic, so that a repeat finds the first try.

Source: model sections 2 (shortening) and 9 (instance ids; one live claim per slot, by construction).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from homelab_api import names

if TYPE_CHECKING:
    from homelab_api.v2alpha1 import Node, NodeClaim

LABEL_VALUE_LIMIT: Final = 63
JOB_NAME_LIMIT: Final = 63
"""A Job's name becomes the value of a label on its pods."""
_SUFFIX: Final = 8


def claim_name(slot_name: str, slot_uid: str, last_claim_uid: str) -> str:
    """The one name that the slot's next claim can have: `<slot>-<8 hex>`.

    Two creators that have seen the same digest ask for the same name, so the API server admits one of them. The slot's
    uid is part of it: a slot that is deleted and made again does not inherit names.
    """
    return f"{slot_name}-{hashlib.sha256(f'{slot_uid}/{last_claim_uid}'.encode()).hexdigest()[:_SUFFIX]}"


def claim_name_of(slot: Node) -> str:
    """`claim_name` for the slot as it was read."""
    last = slot.status.last_claim
    return claim_name(slot.name, slot.uid, last.uid if last else "")


def shortened(text: str, uid: str, limit: int) -> str:
    """`text` if it fits into `limit` characters, else its beginning, a dash and 8 hex digits of `uid`.

    Two long names with one beginning stay apart, since their objects' uids differ. The result ends with a letter or a
    digit, as label values and names must.
    """
    if len(text) <= limit:
        return text
    digits = re.sub(r"[^0-9a-f]", "", uid.lower())[:_SUFFIX]
    if len(digits) < _SUFFIX:  # not a uid as the API server makes them
        digits = hashlib.sha256(uid.encode()).hexdigest()[:_SUFFIX]
    return f"{text[: limit - _SUFFIX - 1].rstrip('-._')}-{digits}"


def label_value(name: str, uid: str) -> str:
    """An object's name as a label value: labels are shorter than names may be."""
    return shortened(name, uid, LABEL_VALUE_LIMIT)


def job_name(base: str, suffix: str, uid: str) -> str:
    """`<base>-<suffix>`, its base shortened so that the whole fits; `uid` is that of the object named `base`."""
    return f"{shortened(base, uid, JOB_NAME_LIMIT - len(suffix) - 1)}-{suffix}"


def slot_labels(slot: Node) -> dict[str, str]:
    """Labels that tell people which slot and pool an object is about. Nothing reads them to decide."""
    group = {names.LABEL_GROUP: slot.group} if slot.group else {}
    return {**group, names.LABEL_NODE: label_value(slot.name, slot.uid)}


def placeholder_id(claim: NodeClaim) -> str:
    """The instance id of a claim whose machine has no node with a providerID yet: `homelab://<ns>/<slot>/<uid>`.

    It is also what we stamp as the node's providerID, so that the id stays. Unique over all groups and never reused.
    """
    return f"{names.PROVIDER_ID_SCHEME}{claim.namespace}/{claim.slot_name}/{claim.uid}"


@dataclass(frozen=True, slots=True)
class Placeholder:
    """What a placeholder id says."""

    namespace: str
    slot: str
    claim_uid: str


def read_placeholder(text: str) -> Placeholder | None:
    """Take a placeholder id apart; None if the text is not one of ours."""
    if not text.startswith(names.PROVIDER_ID_SCHEME):
        return None
    parts = text.removeprefix(names.PROVIDER_ID_SCHEME).split("/")
    return Placeholder(*parts) if len(parts) == 3 and all(parts) else None
