"""The cost of pruning for writers, and its speed.

Clients write runs of 1,000 spans at full speed, one after another. In every second round a pruner
deletes as many older ones meanwhile, as the one in each server does: in batches, with rests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from time import perf_counter

from benchmarks.figures import Figure, at_least
from benchmarks.http_load import load_process
from benchmarks.ingest import wait_until_projected
from benchmarks.mixed import BATCH, RECORDS, write
from benchmarks.surroundings import Bench
from benchmarks.workload import trace
from tracer.storage.postgres import ProjectPool, open_pool
from tracer.storage.postgres.jobs import Pruner
from tracer.storage.postgres.projects import SettingsOfProject


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure writing alone and writing while pruning, in turn."""
    rounds, runs = bench.sized(3, 1), bench.sized(40, 4)
    alone: list[float] = []
    ratios: list[float] = []
    deleted: list[float] = []
    with (
        bench.database() as url,
        bench.server(url) as server,
        load_process() as sender,
        ThreadPoolExecutor(1) as executor,
    ):
        for number in range(rounds):
            bench.say(f"round {number + 1} of {rounds}")
            first = (bench.seed * 10 + 2 * number) * 1_000
            one, other = (
                [trace(start + run, RECORDS) for run in range(runs)]
                for start in (first, first + 1_000)
            )
            alone.append(write(sender, server.address, one).result().rate * BATCH)
            wait_until_projected(url)  # pending runs are not pruned
            pruning = executor.submit(asyncio.run, _prune(url, runs))
            ratios.append(write(sender, server.address, other).result().rate * BATCH / alone[-1])
            deleted.append(pruning.result())
            wait_until_projected(url)
    yield Figure(name="writing alone", value=median(alone), unit="spans/s")
    yield Figure(
        name="writing while older runs are pruned",
        value=median(alone) * median(ratios),
        unit="spans/s",
        yardstick="writing alone",
        ratio=median(ratios),
        goal=at_least(0.75),
    )
    yield Figure(name="pruned meanwhile", value=median(deleted), unit="rows/s")


async def _prune(url: str, keep_runs: int) -> float:
    """Prune all runs but the newest, and return how many records and spans went in a second."""
    async with open_pool(url) as pool:
        settings = SettingsOfProject(ProjectPool(pool))
        await settings.change(keep_runs=keep_runs // 2)
        pruner = Pruner(pool)
        began = perf_counter()
        await pruner.run_once()
        seconds = perf_counter() - began
        await settings.change(keep_runs=None)
    return (pruner.done.records + pruner.done.spans) / seconds
