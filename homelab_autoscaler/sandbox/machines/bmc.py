"""The machines' management endpoint: power commands, the ledger, and the handles of whoever tests or plays.

* `GET /machines`, `GET /machines/<name>`: power, behaviour and history.
* `POST /machines` with a declaration (see `declare`): one more machine.
* `POST /machines/<name>/power` with `{"command": "on" or "off", "sender": "<who>"}`: 200 `{"result": …}`, or 502 when
  the firmware refuses or its answer is lost.
* `POST /machines/<name>/events` with `{"event": "press", "cut", "crash" or "reboot"}`: the machine afterwards.
* `PATCH /machines/<name>/behaviour` with fields of Behaviour: the machine afterwards.
* `GET /ledger`, optionally with `?machine=` and `?command=`: JSON lines.

On loopback and without authentication, like everything in the sandbox.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web

from homelab_autoscaler.sandbox.machines.declare import machine_from_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from homelab_api.meta import JsonObject
    from homelab_autoscaler.sandbox.machines.fleet import Fleet
    from homelab_autoscaler.sandbox.machines.machine import Machine

_LARGEST_BODY: Final = 64 * 1024


class BmcServer:
    """Serves a fleet over HTTP."""

    def __init__(self, fleet: Fleet) -> None:
        """Prepare the server; `start` opens the port."""
        self._fleet = fleet
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        """Open the port (0: a free one).

        Returns:
            The base URL.

        Raises:
            OSError: the port is in use.
        """
        app = web.Application(client_max_size=_LARGEST_BODY, middlewares=[_plain_errors])
        app.router.add_get("/machines", self._list)
        app.router.add_post("/machines", self._add)
        app.router.add_get("/machines/{name}", self._show)
        app.router.add_post("/machines/{name}/power", self._power)
        app.router.add_post("/machines/{name}/events", self._event)
        app.router.add_patch("/machines/{name}/behaviour", self._behave)
        app.router.add_get("/ledger", self._ledger)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        bound = self._runner.addresses[0][1]
        self.url = f"http://{host}:{bound}"
        return self.url

    async def close(self) -> None:
        """Close the port."""
        if self._runner is not None:
            await self._runner.cleanup()

    def _machine(self, request: web.Request) -> Machine:
        try:
            return self._fleet[request.match_info["name"]]
        except KeyError as error:
            raise _problem(404, str(error.args[0])) from None

    async def _list(self, _request: web.Request) -> web.Response:
        return web.json_response({"machines": [machine.to_json() for machine in self._fleet]})

    async def _add(self, request: web.Request) -> web.Response:
        try:
            machine = self._fleet.add(machine_from_json(await _body(request), "machine"))
        except ValueError as error:
            raise _problem(400, str(error)) from None
        return web.json_response(machine.to_json(), status=201)

    async def _show(self, request: web.Request) -> web.Response:
        return web.json_response(self._machine(request).to_json())

    async def _power(self, request: web.Request) -> web.Response:
        machine = self._machine(request)
        body = await _body(request)
        sender = body.get("sender")
        if not isinstance(sender, str) or not sender:
            raise _problem(400, 'sender: say who sends the command, like {"command": "on", "sender": "my-job"}')
        try:
            result = machine.command(str(body.get("command")), sender)
        except ValueError as error:
            raise _problem(400, f"command: {error}") from None
        await machine.answer_pause()
        if not result.acknowledged:
            raise _problem(502, f'machine "{machine.name}" did not confirm "{body["command"]}"')
        return web.json_response({"machine": machine.name, "result": result.result})

    async def _event(self, request: web.Request) -> web.Response:
        machine = self._machine(request)
        event = (await _body(request)).get("event")
        actions: dict[str, Callable[[], object]] = {
            "press": machine.press_button,
            "cut": machine.cut_power,
            "crash": machine.crash,
            "reboot": machine.reboot,
        }
        if event not in actions:
            raise _problem(400, f'event: "{event}" is not one of {", ".join(actions)}')
        actions[event]()
        return web.json_response(machine.to_json())

    async def _behave(self, request: web.Request) -> web.Response:
        machine = self._machine(request)
        try:
            machine.change(machine.behaviour.changed(await _body(request)))
        except ValueError as error:
            raise _problem(400, str(error)) from None
        return web.json_response(machine.to_json())

    async def _ledger(self, request: web.Request) -> web.Response:
        entries = self._fleet.ledger.entries(request.query.get("machine"), request.query.get("command"))
        text = "".join(json.dumps(entry.to_json()) + "\n" for entry in entries)
        return web.Response(text=text, content_type="application/x-ndjson")


class _ProblemError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def _problem(status: int, message: str) -> _ProblemError:
    return _ProblemError(status, message)


async def _body(request: web.Request) -> JsonObject:
    try:
        found: Any = json.loads(await request.read())
    except (ValueError, UnicodeDecodeError):
        raise _problem(400, "the body is not JSON") from None
    if not isinstance(found, dict):
        raise _problem(400, "the body must be a JSON object")
    return found


@web.middleware
async def _plain_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Every refusal is `{"error": …}`."""
    try:
        return await handler(request)
    except _ProblemError as error:
        return web.json_response({"error": str(error)}, status=error.status)
    except web.HTTPException as error:
        return web.json_response({"error": error.reason}, status=error.status)
