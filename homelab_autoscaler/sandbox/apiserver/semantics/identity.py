"""Authentication: bearer tokens, and acting as somebody else.

Meant for loopback. Without `--rbac` a request without a token is the administrator's; with it, it is anonymous.
"""

from __future__ import annotations

import csv
import secrets
from typing import TYPE_CHECKING
from urllib.parse import unquote

from homelab_autoscaler.sandbox.apiserver.request import ADMIN, ANONYMOUS, ApiRequest, User
from homelab_autoscaler.sandbox.apiserver.semantics.rbac import Attributes, Authorizer
from homelab_autoscaler.sandbox.status import ApiStatusError, failure

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_AUTHENTICATED = "system:authenticated"
_SERVICE_ACCOUNT = "system:serviceaccount:"


def with_groups(name: str, groups: Iterable[str] = (), uid: str = "") -> User:
    """A user with the groups that everybody has who is known; service accounts also have those of their namespace."""
    found = list(groups)
    if name.startswith(_SERVICE_ACCOUNT):
        namespace = name.removeprefix(_SERVICE_ACCOUNT).partition(":")[0]
        found += ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    found.append(_AUTHENTICATED)
    return User(name, tuple(dict.fromkeys(found)), uid)


def read_token_file(path: Path) -> dict[str, User]:
    """Tokens from a file of lines `token,user,uid,"group1,group2"`, the format of kube-apiserver's static tokens.

    Raises:
        ValueError: naming the file and the line that has too few columns.
    """
    found = {}
    with path.open(newline="") as lines:
        for number, row in enumerate(csv.reader(lines), 1):
            if not row or not row[0].strip():
                continue
            if len(row) < 3:
                raise ValueError(f"{path}, line {number}: a token needs three columns: token,user,uid and maybe groups")
            groups = row[3].split(",") if len(row) > 3 and row[3] else []
            found[row[0]] = with_groups(row[1], groups, row[2])
    return found


class Authenticator:
    """Finds out who asks."""

    def __init__(self, authorizer: Authorizer, tokens: dict[str, User] | None = None) -> None:
        self._authorizer = authorizer
        self._tokens = dict(tokens or {})

    def issue(self, user: User) -> str:
        """A new token for a user."""
        token = secrets.token_urlsafe(24)
        self._tokens[token] = user
        return token

    def user_of(self, token: str) -> User | None:
        """Whose token it is."""
        return self._tokens.get(token)

    def authenticate(self, request: ApiRequest) -> User:
        """Who asks, with impersonation applied.

        Raises:
            ApiStatusError: 401 for a token that is not known, 403 for impersonation without the right to it.
        """
        user = request.user or self._base(request)
        return self._impersonated(request, user)

    def _base(self, request: ApiRequest) -> User:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        token = token.strip()
        if scheme.lower() == "bearer" and token:
            user = self._tokens.get(token)
            if user is not None:
                return user
            if self._authorizer.enabled or self._tokens:
                raise unauthorized()
            return ADMIN
        return ANONYMOUS if self._authorizer.enabled else ADMIN

    def _impersonated(self, request: ApiRequest, user: User) -> User:
        name = request.headers.get("impersonate-user", "")
        groups = request.multi.get("impersonate-group", [])
        uid = request.headers.get("impersonate-uid", "")
        extra = {
            unquote(key.removeprefix("impersonate-extra-")): tuple(values)
            for key, values in request.multi.items()
            if key.startswith("impersonate-extra-")
        }
        if not name:
            if groups or uid or extra:
                raise failure(
                    500,
                    "InternalError",
                    "Internal error occurred: requested [] without impersonating a user",
                    {"causes": [{"message": "requested [] without impersonating a user"}]},
                )
            return user
        if name.startswith(_SERVICE_ACCOUNT) and name.count(":") == 3:
            _, _, namespace, account = name.split(":")
            self._authorizer.check(user, Attributes("impersonate", "", "v1", "serviceaccounts", "", namespace, account))
        else:
            self._authorizer.check(user, Attributes("impersonate", "", "v1", "users", name=name))
        for group in groups:
            self._authorizer.check(user, Attributes("impersonate", "", "v1", "groups", name=group))
        acting = with_groups(name, groups, uid)
        if name == ANONYMOUS.name:
            acting = User(name, (*groups, "system:unauthenticated"))
        return User(acting.name, acting.groups, uid, extra)


def unauthorized() -> ApiStatusError:
    """401."""
    return failure(401, "Unauthorized", "Unauthorized")
