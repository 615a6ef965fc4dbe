"""Restarts of the process, many watches."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request

import pytest

from homelab_autoscaler.sandbox.testing import running_api_server


class Process:
    """`python -m homelab_autoscaler.sandbox.apiserver` with a data directory."""

    def __init__(self, folder):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "homelab_autoscaler.sandbox.apiserver", "--data-dir", str(folder)],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = self._process.stdout.readline().strip()

    def end(self, signum):
        os.kill(self._process.pid, signum)
        self._process.wait(20)
        self._process.stdout.close()

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(self.url + path, data, {"Content-Type": kind}, method=method)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return json.load(answer)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_keeps_objects_definitions_and_revisions(tmp_path, signum):
    maps = "/api/v1/namespaces/default/configmaps"
    first = Process(tmp_path)
    try:
        names = {"plural": "things", "kind": "Thing"}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        spec = {"group": "keep.example.dev", "scope": "Cluster", "names": names, "versions": [version]}
        definition = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "spec": spec}
        crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        first.call("POST", crds, {**definition, "metadata": {"name": "things.keep.example.dev"}})
        thing = {"apiVersion": "keep.example.dev/v1", "kind": "Thing", "metadata": {"name": "t"}}
        first.call("POST", "/apis/keep.example.dev/v1/things", thing)
        first.call("POST", maps, {"metadata": {"name": "gone"}})
        kept = first.call("POST", maps, {"metadata": {"name": "kept"}, "data": {"a": "1"}})
        first.call("DELETE", f"{maps}/gone")
        before = first.call("GET", maps)
    finally:
        first.end(signum)
    second = Process(tmp_path)
    try:
        after = second.call("GET", maps)
        assert after["items"] == before["items"]
        assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
        changed = second.call("PATCH", f"{maps}/kept", {"data": {"a": "2"}})
        assert int(changed["metadata"]["resourceVersion"]) > int(before["metadata"]["resourceVersion"])
        assert changed["metadata"]["uid"] == kept["metadata"]["uid"]
        found = second.call("GET", "/apis/keep.example.dev/v1/things")["items"]
        assert [item["metadata"]["name"] for item in found] == ["t"]
    finally:
        second.end(signal.SIGTERM)


def test_two_hundred_watchers_miss_none_of_three_hundred_events_and_a_thousand_idle_ones_do_not_matter():
    with running_api_server() as server:
        maps, events = "/api/v1/namespaces/default/configmaps", 300

        async def story():
            client = server.server.local()

            async def idle():
                stream = client.watch("/api/v1/nodes", resource_version="0")
                try:
                    await anext(stream)
                finally:
                    await stream.aclose()

            idlers = [asyncio.create_task(idle()) for _ in range(1000)]
            start = (await client.list(maps))["metadata"]["resourceVersion"]

            async def follow():
                seen = []
                stream = client.watch(maps, resource_version=start)
                async for event in stream:
                    seen.append(event["object"]["metadata"]["name"])
                    if len(seen) == events:
                        await stream.aclose()
                        return seen
                return seen

            followers = [asyncio.create_task(follow()) for _ in range(200)]
            await asyncio.sleep(0)
            expected = [f"c{number}" for number in range(events)]
            for name in expected:
                await client.create(maps, {"metadata": {"name": name}})
            seen = await asyncio.gather(*followers)
            open_watches = server.server.open_watches
            for task in idlers:
                task.cancel()
            await asyncio.gather(*idlers, return_exceptions=True)
            return seen, expected, open_watches

        seen, expected, open_watches = server.call(story())
        assert all(names == expected for names in seen)
        assert open_watches == 1000
