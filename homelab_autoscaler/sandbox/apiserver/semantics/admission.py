"""Validating admission webhooks, called over TLS."""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from homelab_autoscaler.sandbox.apiserver.semantics import cel
from homelab_autoscaler.sandbox.apiserver.semantics.reviews import user_info
from homelab_autoscaler.sandbox.apiserver.semantics.selectors import from_object
from homelab_autoscaler.sandbox.apiserver.semantics.webhook_address import NoAddressError, address_of
from homelab_autoscaler.sandbox.apiserver.store import Change, Key, Store
from homelab_autoscaler.sandbox.status import ApiStatusError, failure

if TYPE_CHECKING:
    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.apiserver.semantics.plane import Call

_COLLECTION = "admissionregistration.k8s.io/validatingwebhookconfigurations"
# Objects that decide about admission are not subject to it, or a bad webhook could never be removed.
_EXEMPT = {_COLLECTION, "admissionregistration.k8s.io/mutatingwebhookconfigurations"}
_MAX_ANSWER = 3 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Hook:
    """One webhook, read from its configuration."""

    name: str
    body: JsonObject

    @property
    def ignores_failures(self) -> bool:
        """Whether a webhook that cannot be asked lets requests through."""
        return bool(self.body.get("failurePolicy") == "Ignore")

    @property
    def timeout(self) -> int:
        """Seconds."""
        seconds: int = self.body.get("timeoutSeconds", 10)
        return seconds

    def has_rule(self, call: Call, operation: str, subresource: str) -> bool:
        """Whether one of its rules is about such a request."""
        resource = call.resource
        path = f"{resource.plural}/{subresource}" if subresource else resource.plural
        for rule in self.body.get("rules") or ():
            scope = rule.get("scope", "*")
            if scope != "*" and (scope == "Namespaced") != resource.namespaced:
                continue
            if not _in(operation, rule.get("operations")) or not _in(resource.group, rule.get("apiGroups")):
                continue
            if not _in(resource.version, rule.get("apiVersions")):
                continue
            for wanted in rule.get("resources") or ():
                if wanted in {"*/*", path} or (wanted == "*" and not subresource):
                    return True
                if wanted == f"*/{subresource}" and subresource:
                    return True
                if wanted == f"{resource.plural}/*":
                    return True
        return False


def _in(value: str, allowed: list[str] | None) -> bool:
    return bool(allowed) and ("*" in allowed or value in allowed)  # type: ignore[operator]


class _CallError(Exception):
    """A webhook that could not be asked or gave no answer."""


class Webhooks:
    """Finds the webhooks of a request and asks them."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._hooks: list[Hook] | None = None
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[str, ssl.SSLContext] = {}
        store.listeners.append(self._changed)

    def _changed(self, change: Change) -> None:
        if change.collection == _COLLECTION:
            self._hooks = None

    async def close(self) -> None:
        """Close connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _all(self) -> list[Hook]:
        if self._hooks is None:
            self._hooks = [
                Hook(entry.get("name", ""), entry)
                for stored in self._store.collection(_COLLECTION).items()
                for entry in stored.load().get("webhooks") or ()
            ]
        return self._hooks

    def wanted(self, call: Call, operation: str, subresource: str) -> bool:
        """Whether any webhook's rules are about such a request."""
        if call.resource.collection in _EXEMPT:
            return False
        hooks = self._all()
        return bool(hooks) and any(hook.has_rule(call, operation, subresource) for hook in hooks)

    async def review(
        self,
        call: Call,
        operation: str,
        new: JsonObject | None,
        old: JsonObject | None,
        options: JsonObject,
        *,
        name: str,
        dry_run: bool,
    ) -> None:
        """Ask every webhook that the request concerns, all at once.

        Raises:
            ApiStatusError: a denial, or 500 for one that failed and is not ignored.
        """
        subresource = call.target.subresource
        request = _request(call, operation, new, old, options, name=name, dry_run=dry_run)
        concerned = [
            hook
            for hook in self._all()
            if hook.has_rule(call, operation, subresource) and self._selects(hook, call, new, old)
        ]
        matching = [hook for hook in concerned if self._conditions_hold(hook, request)]
        results = await asyncio.gather(*(self._ask(hook, call, request) for hook in matching))
        for error in results:
            if error is not None:
                raise error

    def _selects(self, hook: Hook, call: Call, new: JsonObject | None, old: JsonObject | None) -> bool:
        selector = from_object(hook.body.get("objectSelector") or {})
        if selector:
            labels = [(body["metadata"].get("labels") or {}) for body in (new, old) if body is not None]
            if not any(selector.matches(item) for item in labels):
                return False
        selector = from_object(hook.body.get("namespaceSelector") or {})
        if selector:
            if call.resource.collection == "/namespaces":
                bodies = [body for body in (new, old) if body is not None]
                return any(selector.matches(body["metadata"].get("labels") or {}) for body in bodies)
            if call.target.namespace:
                found = self._store.collection("/namespaces").get(Key("", call.target.namespace))
                return found is not None and selector.matches(found.labels)
        return True

    @staticmethod
    def _conditions_hold(hook: Hook, request: JsonObject) -> bool:
        conditions = hook.body.get("matchConditions") or ()
        variables = {"request": request, "object": request["object"], "oldObject": request["oldObject"]}
        for condition in conditions:
            try:
                held = cel.evaluate(condition.get("expression", ""), variables)
            except (cel.CelError, RuntimeError, ValueError, TypeError, KeyError) as error:
                if hook.ignores_failures:
                    return False
                raise _failed(hook, f"matchConditions: {condition.get('name', '')}: {error}") from None
            if held is not True:
                return False
        return True

    async def _ask(self, hook: Hook, call: Call, request: JsonObject) -> ApiStatusError | None:
        if request["dryRun"] and hook.body.get("sideEffects") not in {"None", "NoneOnDryRun"}:
            return failure(400, "BadRequest", f'admission webhook "{hook.name}" does not support dry run')
        try:
            response = await self._post(hook, request)
        except _CallError as error:
            if hook.ignores_failures:
                return None
            return _failed(hook, str(error))
        for text in response.get("warnings") or ():
            call.warn(str(text))
        if response.get("allowed") is True:
            return None
        return _denied(hook, response.get("status") or {})

    async def _post(self, hook: Hook, request: JsonObject) -> JsonObject:
        client = hook.body.get("clientConfig") or {}
        try:
            address = address_of(client, self._store).with_timeout(hook.timeout)
        except NoAddressError as error:
            raise _CallError(f"failed to call webhook: {error}") from None
        parts = urlsplit(address.url)
        uid = str(uuid.uuid4())
        review = {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {"uid": uid, **request}}
        what = f'failed to call webhook: Post "{address.shown}": '
        try:
            async with asyncio.timeout(hook.timeout):
                async with self._connection().post(
                    address.url,
                    data=orjson.dumps(review),
                    headers={
                        "Content-Type": "application/json",
                        "Accept": "application/json",
                        "Host": urlsplit(address.shown).netloc,
                    },
                    server_hostname=address.server_name,
                    ssl=self._context(client.get("caBundle") or "") if parts.scheme == "https" else False,
                ) as answer:
                    raw = await answer.content.read(_MAX_ANSWER)
                    status = answer.status
        except TimeoutError:
            raise _CallError(what + "context deadline exceeded") from None
        except aiohttp.ClientConnectorCertificateError as error:
            raise _CallError(what + f"tls: failed to verify certificate: x509: {error.certificate_error}") from None
        except aiohttp.ClientConnectorSSLError as error:
            raise _CallError(what + f"tls: certificate problem: {error.os_error}") from None
        except aiohttp.ClientConnectorError as error:
            host, port = parts.hostname, parts.port or 443
            text = (
                "connect: connection refused"
                if isinstance(error.os_error, ConnectionRefusedError)
                else str(error.os_error)
            )
            raise _CallError(what + f"dial tcp {host}:{port}: {text}") from None
        except (aiohttp.ClientError, OSError, ssl.SSLError, ValueError) as error:
            raise _CallError(what + str(error)) from None
        return _read(raw, status, uid)

    def _connection(self) -> aiohttp.ClientSession:
        if self._session is None:
            # One connection per call: webhook servers of tests come and go.
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True, limit=0))
        return self._session

    def _context(self, bundle: str) -> ssl.SSLContext:
        if bundle not in self._contexts:
            try:
                if bundle:
                    context = ssl.create_default_context(cadata=base64.b64decode(bundle).decode())
                else:
                    context = ssl.create_default_context()
            except (ssl.SSLError, binascii.Error, UnicodeDecodeError, ValueError) as error:
                raise _CallError(f"unable to load root certificates: {error}") from None
            if len(self._contexts) > 64:
                self._contexts.clear()
            self._contexts[bundle] = context
        return self._contexts[bundle]


def _read(raw: bytes, status: int, uid: str) -> JsonObject:
    if status != 200:
        text = raw[:200].decode(errors="replace")
        raise _CallError(
            f"failed to call webhook: an error on the server ({text!r}) has prevented the request from succeeding"
        )
    try:
        review: Any = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise _CallError(f"failed to call webhook: the answer is no JSON: {error}") from None
    response = review.get("response") if isinstance(review, dict) else None
    if not isinstance(response, dict):
        raise _CallError("webhook response was absent")
    if response.get("uid") != uid:
        raise _CallError(f"expected response.uid={uid}, got {response.get('uid')}")
    return response


def _request(
    call: Call,
    operation: str,
    new: JsonObject | None,
    old: JsonObject | None,
    options: JsonObject,
    *,
    name: str,
    dry_run: bool,
) -> JsonObject:
    resource = call.resource
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    where = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    request: JsonObject = {"kind": kind, "resource": where}
    if call.target.subresource:
        request["subResource"] = call.target.subresource
    request |= {"requestKind": kind, "requestResource": where}
    if call.target.subresource:
        request["requestSubResource"] = call.target.subresource
    if name:
        request["name"] = name
    if call.target.namespace:
        request["namespace"] = call.target.namespace
    return {
        **request,
        "operation": operation,
        "userInfo": user_info(call.user),
        "object": new,
        "oldObject": old,
        "dryRun": dry_run,
        "options": options,
    }


def _failed(hook: Hook, why: str) -> ApiStatusError:
    text = f'failed calling webhook "{hook.name}": {why}'
    return failure(500, "InternalError", f"Internal error occurred: {text}", {"causes": [{"message": text}]})


def _denied(hook: Hook, status: JsonObject) -> ApiStatusError:
    message, reason = status.get("message") or "", status.get("reason") or ""
    start = f'admission webhook "{hook.name}" denied the request'
    text = f"{start}: {message or reason}" if message or reason else f"{start} without explanation"
    code = status.get("code") or 400
    if not isinstance(code, int) or not 400 <= code <= 599:
        code = 400
    return failure(code, reason, text, status.get("details") or None)
