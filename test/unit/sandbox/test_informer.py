import asyncio

import pytest

from homelab_autoscaler.sandbox.clock import ManualSandboxClock
from homelab_autoscaler.sandbox.informer import Informer
from homelab_autoscaler.sandbox.resources import CONFIG_MAPS


def obj(name, version, uid="", **spec):
    meta = {"name": name, "namespace": "n", "uid": uid or name, "resourceVersion": str(version)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "spec": spec}


class Script:
    """A server whose lists and watches are given in advance; a watch that has no more events stays open."""

    def __init__(self, *steps):
        self.steps = list(steps)
        self.asked = []

    async def list(self, path, **query):
        self.asked.append(("list", query))
        kind, payload = self.steps.pop(0)
        assert kind == "list", f"expected {kind}"
        if isinstance(payload, Exception):
            raise payload
        version, *items = payload
        return {
            "kind": "ConfigMapList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": str(version)},
            "items": [
                {key: value for key, value in item.items() if key not in ("kind", "apiVersion")} for item in items
            ],
        }

    async def watch(self, path, *, resource_version=None, query=None):
        self.asked.append(("watch", resource_version))
        if not self.steps:
            await asyncio.Event().wait()
        kind, events = self.steps.pop(0)
        assert kind == "watch", f"expected {kind}"
        for event in events:
            if isinstance(event, Exception):
                raise event
            if isinstance(event, asyncio.Event):
                await event.wait()
                continue
            yield {"type": event[0], "object": event[1]}


def follow(script, story=None, seconds=1.0):
    """Run an informer through a script; returns it and what its handler heard."""
    heard = []

    async def run():
        clock = ManualSandboxClock()
        informer = Informer(script, clock, CONFIG_MAPS)

        def handler(old, new):
            heard.append((old and old["metadata"]["resourceVersion"], new and new["metadata"]["resourceVersion"]))

        informer.on_change(handler)
        task = asyncio.ensure_future(informer.run())
        await clock.advance(seconds)
        if story is not None:
            await story(informer, clock)
        assert not task.done()
        task.cancel()
        return informer

    return asyncio.run(run()), heard


def names(informer):
    return sorted(item["metadata"]["name"] for item in informer.items())


def test_a_list_and_a_watch_give_the_present_state():
    script = Script(
        ("list", (5, obj("a", 1), obj("b", 2))),
        ("watch", [("ADDED", obj("c", 6)), ("MODIFIED", obj("a", 7, x=1)), ("DELETED", obj("b", 8))]),
    )
    informer, heard = follow(script)
    assert names(informer) == ["a", "c"]
    assert informer.get(("n", "a"))["spec"] == {"x": 1}
    assert heard == [(None, "1"), (None, "2"), (None, "6"), ("1", "7"), ("2", None)]


def test_items_of_a_list_get_the_kind_that_watch_events_have():
    informer, _ = follow(Script(("list", (5, obj("a", 1)))))
    assert (informer.items()[0]["kind"], informer.items()[0]["apiVersion"]) == ("ConfigMap", "v1")


def test_a_cut_watch_goes_on_where_it_was():
    script = Script(
        ("list", (5,)),
        ("watch", [("ADDED", obj("a", 6)), ConnectionResetError("cut")]),
        ("watch", [("BOOKMARK", obj("", 9))]),
        ("watch", []),
    )
    informer, _ = follow(script, seconds=10)
    assert names(informer) == ["a"]
    assert [version for kind, version in script.asked if kind == "watch"][:3] == ["5", "6", "9"]


def test_an_expired_revision_leads_to_a_new_list_whose_differences_are_told():
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "metadata": {}}
    script = Script(
        ("list", (5, obj("a", 1), obj("b", 2))),
        ("watch", [("ERROR", gone)]),
        ("list", (20, obj("b", 12), obj("c", 13))),
    )
    informer, heard = follow(script)
    assert names(informer) == ["b", "c"]
    assert heard[2:] == [("1", None), ("2", "12"), (None, "13")]


def test_a_server_that_is_away_is_tried_again():
    script = Script(("list", ConnectionRefusedError("away")), ("list", (5, obj("a", 1))))
    informer, _ = follow(script)
    assert names(informer) == ["a"]


def test_an_object_made_anew_is_told_as_two_objects():
    script = Script(
        ("list", (5, obj("a", 1, uid="first"))),
        ("watch", [("ADDED", obj("a", 8, uid="second"))]),
    )
    _, heard = follow(script)
    assert heard == [(None, "1"), ("1", None), (None, "8")]


def test_an_own_write_counts_at_once_and_its_event_changes_nothing():
    async def story(informer, clock):
        informer.observe(obj("a", 7, x=1))
        assert informer.get(("n", "a"))["spec"] == {"x": 1}

    script = Script(("list", (5, obj("a", 1))))
    _, heard = follow(script, story)
    assert heard == [(None, "1"), ("1", "7")]


def test_an_own_write_that_the_watch_has_passed_is_ignored():
    async def story(informer, clock):
        informer.observe(obj("a", 6))
        assert names(informer) == []

    script = Script(("list", (5,)), ("watch", [("ADDED", obj("a", 6)), ("DELETED", obj("a", 7))]))
    follow(script, story)


def test_an_older_event_does_not_undo_an_own_write():
    written = asyncio.Event()

    async def story(informer, clock):
        informer.observe(obj("a", 9, x="new"))
        written.set()
        await clock.advance(1)
        assert names(informer) == ["a", "b"]

    events = [written, ("MODIFIED", obj("a", 7, x="old")), ("ADDED", obj("b", 8))]
    informer, _ = follow(Script(("list", (5, obj("a", 1))), ("watch", events)), story)
    assert informer.get(("n", "a"))["spec"] == {"x": "new"}


def test_a_handler_that_comes_late_hears_what_is_there():
    async def story(informer, clock):
        heard = []
        informer.on_change(lambda old, new: heard.append(new["metadata"]["name"]))
        assert heard == ["a"]

    follow(Script(("list", (5, obj("a", 1)))), story)


@pytest.mark.parametrize("version", ["", "abc"])
def test_a_revision_that_is_no_number_leads_to_no_conclusion(version):
    async def story(informer, clock):
        informer.observe(obj("a", version))
        assert informer.get(("n", "a"))["metadata"]["resourceVersion"] == "1"

    follow(Script(("list", (5, obj("a", 1)))), story)
