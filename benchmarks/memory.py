"""How much memory the server and its projectors take under full load, and whether it grows.

Resident memory, read every 20 ms until everything is projected. The application's own processes
(the demonstration has an MCP server) are counted apart: they take the same whatever is sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import psutil

from benchmarks.figures import Figure, at_most
from benchmarks.http_load import Sequences, load_process, send
from benchmarks.ingest import load_of, otlp_requests, wait_until_projected
from benchmarks.other_forms import exporters
from benchmarks.surroundings import Bench

CLIENTS = 16
LOADS = 3
LOOK_SECONDS = 0.02
PROJECTOR = "tracer.storage.postgres.processes"


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure the same load several times, with other traces."""
    most = most_of_projector = 0.0
    after: list[float] = []
    with (
        bench.database() as url,
        bench.server(url) as server,
        load_process() as sender,
        ThreadPoolExecutor(1) as executor,
    ):
        process = psutil.Process(server.process.pid)
        yield Figure(name="at the start", value=_megabytes(process), unit="MB")
        children = process.children(recursive=True)
        projectors = [each for each in children if PROJECTOR in each.cmdline()]
        others = sum(_megabytes(each) for each in children if each not in projectors)
        yield Figure(name="the application's MCP server", value=others, unit="MB")
        for number in range(LOADS):
            bench.say(f"load {number + 1} of {LOADS}")
            sent = exporters(bench.seed + 50 + number, 1_000, bench.sized(40_000, 2_000))
            requests = load_of(sent, otlp_requests).sequences
            sending = executor.submit(_send, sender, url, server.address, requests)
            of_server, *of_projectors = _most([process, *projectors], sending)
            most = max(most, of_server)
            most_of_projector = max(most_of_projector, *of_projectors)
            after.append(_megabytes(process))
    yield Figure(name="at full load", value=most, unit="MB", goal=at_most(400, "value"))
    yield Figure(name="the larger projector at full load", value=most_of_projector, unit="MB")
    yield Figure(name="after the first load", value=after[0], unit="MB")
    yield Figure(
        name=f"after {LOADS} loads",
        value=after[-1],
        unit="MB",
        yardstick="after the first load",
        ratio=after[-1] / after[0],
        goal=at_most(1.2),
    )


def _send(sender: Executor, url: str, address: str, requests: Sequences) -> None:
    sender.submit(send, address, requests, CLIENTS).result()
    wait_until_projected(url)


def _most(processes: list[psutil.Process], sending: Future[None]) -> list[float]:
    """Return the most that each process took until everything is projected."""
    most = [_megabytes(each) for each in processes]
    while True:
        try:
            sending.result(timeout=LOOK_SECONDS)
        except TimeoutError:
            most = list(map(max, most, map(_megabytes, processes)))
        else:
            return most


def _megabytes(process: psutil.Process) -> float:
    return process.memory_info().rss / 1e6
