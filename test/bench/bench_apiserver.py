"""The embedded API server: start, throughput on one core, lists, watch fan-out, memory.

Run: python test/bench/bench_apiserver.py. The server is a process of its own, pinned to one core; the load comes from
this process over 16 keep-alive connections. On a busy machine look at the figures per second of the server's CPU time.
Prints numbers; asserts nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import platform
import statistics
import subprocess
import sys
import time
import urllib.parse
from pathlib import Path

import orjson

from homelab_autoscaler.sandbox.apiserver import ApiServer

MAPS = "/api/v1/namespaces/default/configmaps"
CONNECTIONS = 16
OBJECT = {"metadata": {"labels": {"app": "bench"}}, "data": {f"key-{number}": "v" * 40 for number in range(12)}}


def named(name: str) -> dict[str, object]:
    """A ConfigMap of about 1 KB as it is stored."""
    return {**OBJECT, "metadata": {**OBJECT["metadata"], "name": name}}


def machine() -> str:
    """What the figures were measured on."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return f"{model}, {os.cpu_count()} cores, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> float:
    """Resident memory in MiB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


async def started_in_process() -> float:
    """Milliseconds from nothing to a listening server, without imports."""
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        server = ApiServer()
        await server.start()
        times.append((time.perf_counter() - begin) * 1e3)
        await server.stop()
    return statistics.median(times)


async def listed(count: int) -> float:
    """Milliseconds for a list, without a network."""
    server = ApiServer()
    client = server.local()
    for number in range(count):
        await client.create(MAPS, named(f"c{number}"))
    times = []
    for _ in range(30):
        begin = time.perf_counter()
        await client.request("GET", MAPS)
        times.append((time.perf_counter() - begin) * 1e3)
    await server.stop()
    return statistics.median(times)


async def fanned_out(watchers: int, events: int) -> tuple[int, float]:
    """How many deliveries were lost, and deliveries per second."""
    server = ApiServer()
    client = server.local()
    start = (await client.list(MAPS))["metadata"]["resourceVersion"]

    async def follow() -> int:
        stream = client.watch(MAPS, resource_version=start)
        seen = 0
        async for _ in stream:
            seen += 1
            if seen == events:
                break
        await stream.aclose()
        return seen

    tasks = [asyncio.create_task(follow()) for _ in range(watchers)]
    await asyncio.sleep(0.1)
    begin = time.perf_counter()
    for number in range(events):
        await client.create(MAPS, named(f"c{number}"))
    seen = await asyncio.gather(*tasks)
    elapsed = time.perf_counter() - begin
    await server.stop()
    return watchers * events - sum(seen), sum(seen) / elapsed


class Load:
    """Requests over keep-alive connections, as fast as answers come."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        self._host, self._port = parts.hostname, parts.port

    async def run(self, requests: list[bytes]) -> float:
        """Send all requests; returns the seconds that it took."""
        shares = [requests[index::CONNECTIONS] for index in range(CONNECTIONS)]
        begin = time.perf_counter()
        await asyncio.gather(*(self._connection(share) for share in shares))
        return time.perf_counter() - begin

    async def _connection(self, requests: list[bytes]) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        for request in requests:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            if head[9:11] != b"20":
                raise RuntimeError(head.decode())
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r")[0])
            await reader.readexactly(length)
        writer.close()
        await writer.wait_closed()


def request(method: str, path: str, body: object = None) -> bytes:
    """One HTTP request as bytes."""
    data = b"" if body is None else orjson.dumps(body)
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: bench/1\r\nContent-Length: {len(data)}\r\n"
    return f"{head}Content-Type: application/json\r\n\r\n".encode() + data


def measure_process() -> None:
    """Start a server process and load it."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "homelab_autoscaler.sandbox.apiserver"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        print(f"process start to listening   {time.perf_counter() - begin:8.2f} s")
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(process.pid, {cores[0]})
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, set(cores[1:]) or set(cores))
        print(f"memory idle                  {resident(process.pid):8.0f} MiB")
        load = Load(url)
        figures = [
            ("creates", [request("POST", MAPS, named(f"c{number}")) for number in range(10_000)]),
            ("GETs", [request("GET", f"{MAPS}/c{number}") for number in range(10_000)]),
        ]
        for what, requests in figures:
            before = cpu_seconds(process.pid)
            elapsed = asyncio.run(load.run(requests))
            used = cpu_seconds(process.pid) - before
            rate, rate_cpu = len(requests) / elapsed, len(requests) / used
            print(f"{what:8} over HTTP           {rate:8.0f} /s   ({rate_cpu:.0f} per second of the server's CPU time)")
        print(f"memory with 10,000 objects   {resident(process.pid):8.0f} MiB")
    finally:
        process.terminate()
        process.wait(20)
        process.stdout.close()


def main() -> None:
    """Measure and print."""
    print(machine())
    print(f"start in process             {asyncio.run(started_in_process()):8.1f} ms")
    print(f"list of 1,000 objects        {asyncio.run(listed(1000)):8.2f} ms")
    lost, rate = asyncio.run(fanned_out(200, 300))
    print(f"200 watchers x 300 events    {lost:8d} lost   ({rate:.0f} deliveries/s)")
    measure_process()


if __name__ == "__main__":
    main()
