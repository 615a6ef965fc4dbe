"""The server's own endpoints under /sandbox: faults in, writes out. No part of the Kubernetes API.

| Request | Does |
|---|---|
| `GET /sandbox/faults` | lists the rules with how often each was seen and has struck |
| `POST /sandbox/faults` | adds a rule, given as JSON with the fields of `Fault`; answers its `id` |
| `DELETE /sandbox/faults[/ID]` | takes one rule or all of them out |
| `POST /sandbox/faults/seed` | `{"seed": N}` starts the random sequence again |
| `POST /sandbox/faults/forget-history` | empties the event log: older watches get 410 |
| `POST /sandbox/faults/log-size` | `{"size": N}` limits the event log |
| `GET /sandbox/writes?since=REVISION&user=…&resource=…` | lists committed writes, oldest first |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from homelab_autoscaler.sandbox.apiserver.faults import Fault, Faults
from homelab_autoscaler.sandbox.apiserver.presentation.answers import answer
from homelab_autoscaler.sandbox.apiserver.semantics.options import integer
from homelab_autoscaler.sandbox.status import bad_request, failure, method_not_allowed, success

if TYPE_CHECKING:
    from homelab_autoscaler.sandbox.apiserver.request import ApiRequest, ApiResponse
    from homelab_autoscaler.sandbox.apiserver.writelog import WriteLog


class Control:
    """Answers requests under /sandbox."""

    def __init__(self, faults: Faults, writes: WriteLog) -> None:
        self._faults = faults
        self._writes = writes

    def handle(self, request: ApiRequest, parts: list[str]) -> ApiResponse | None:
        """The answer; None when there is no such path.

        Args:
            request: the request.
            parts: its path, without the leading `sandbox`.

        Raises:
            ApiStatusError: 400 for bodies and parameters that make no sense, 404 for a rule that is not there.
        """
        if parts == ["writes"]:
            if request.method != "GET":
                raise method_not_allowed()
            return self._list_writes(request)
        if parts[:1] != ["faults"]:
            return None
        if len(parts) == 1:
            return self._rules(request)
        if request.method == "DELETE" and len(parts) == 2 and parts[1].isdigit():
            if not self._faults.remove(int(parts[1])):
                raise failure(404, "NotFound", f"fault {parts[1]} is not in force", {})
            return answer(success(), 200)
        if request.method == "POST" and len(parts) == 2:
            return self._action(request, parts[1])
        return None

    def _rules(self, request: ApiRequest) -> ApiResponse:
        if request.method == "GET":
            return answer({"faults": self._faults.to_json()}, 200)
        if request.method == "POST":
            try:
                fault = Fault.of(_object(request))
            except (ValueError, TypeError) as error:
                raise bad_request(f"fault: {error}") from None
            return answer({"id": self._faults.add(fault)}, 201)
        if request.method == "DELETE":
            self._faults.clear()
            return answer(success(), 200)
        raise method_not_allowed()

    def _action(self, request: ApiRequest, name: str) -> ApiResponse | None:
        if name == "forget-history":
            self._faults.forget_history()
        elif name == "log-size":
            self._faults.limit_log(_number(request, "size"))
        elif name == "seed":
            self._faults.seed(_number(request, "seed"))
        else:
            return None
        return answer(success(), 200)

    def _list_writes(self, request: ApiRequest) -> ApiResponse:
        writes = self._writes.since(integer(request.parameter("since") or "0"))
        user, resource = request.parameter("user"), request.parameter("resource")
        found = [
            write.to_json()
            for write in writes
            if (not user or write.user == user) and (not resource or write.resource == resource)
        ]
        return answer({"writes": found}, 200)


def _object(request: ApiRequest) -> dict[str, Any]:
    try:
        body = orjson.loads(request.body)
    except orjson.JSONDecodeError as error:
        raise bad_request(f"the body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise bad_request("the body must be a JSON object")
    return body


def _number(request: ApiRequest, field: str) -> int:
    value = _object(request).get(field)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise bad_request(f"{field} {value!r} must be a whole number, 0 or greater")
    return value
