"""The delay of live updates in the viewer: from the commit to the row in the run's page.

A program records a run into Postgres at 100 events a second, as in `live.py`; a page in headless
Chromium shows it, the latest call uppermost. A time is that of the tree's change, before the
browser paints.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from time import perf_counter

from playwright.async_api import Browser

from benchmarks.figures import Figure, at_most, spread
from benchmarks.live import EVENTS_A_SECOND, Recording, recording_process
from benchmarks.surroundings import Bench
from benchmarks.viewer import chromium
from tracer.clock import utc_now
from tracer.records import new_id
from tracer.records.events import ToolCallStarted
from tracer.storage.postgres import PostgresWriter

SIZES = (0, 1_000, 10_000)
"""How many records the run has before."""

WATCH = """() => {
    window.seen = {}
    const note = () => {
        const now = performance.timeOrigin + performance.now()
        for (const item of document.querySelectorAll('[role=treeitem]')) {
            window.seen[item.dataset.key] ??= now
        }
    }
    note()
    new MutationObserver(note).observe(document.querySelector('[role=tree]'), {
        subtree: true, childList: true, attributes: true, attributeFilter: ['data-key'],
    })
}"""


async def record(writer: PostgresWriter, run: Recording, seconds: int) -> dict[str, float]:
    """Record calls at the rate that is to be kept; return when the start of each was committed."""
    committed = {}
    began = perf_counter()
    for number in range(EVENTS_A_SECOND * seconds // 2):
        call = new_id()
        start = ToolCallStarted(
            **run.place(call), name="measure", arguments="{}", position=1_000_000 - number
        )
        for half, event in enumerate((start, run.finished(call))):
            due = began + (2 * number + half) / EVENTS_A_SECOND
            await asyncio.sleep(max(0.0, due - perf_counter()))
            await writer.write([event])
            if event is start:
                committed[str(call)] = 1000 * utc_now().timestamp()
    return committed


async def seen_in_page(
    browser: Browser, address: str, url: str, size: int, seconds: int
) -> tuple[list[float], int]:
    """Return how many milliseconds after its commit each call was seen, and how many were not."""
    run = Recording()
    async with recording_process(url) as writer:
        await writer.write([run.plan()])
        for _ in range(0, size, 1000):
            await writer.write([run.finished(new_id()) for _ in range(1000)])
        page = await browser.new_page(viewport={"width": 1440, "height": 900})
        await page.goto(f"{address}/runs/{run.root}?level=all")
        await page.wait_for_selector("[role=treeitem]")
        await page.evaluate(WATCH)
        committed = await record(writer, run, seconds)
        await page.wait_for_timeout(2_000)
        seen: dict[str, float] = await page.evaluate("window.seen")
        await page.close()
    waited = [seen[call] - at for call, at in committed.items() if call in seen]
    return waited, len(committed) - len(waited)


async def figures(bench: Bench, url: str, address: str) -> list[Figure]:
    """Return how soon the page of each run showed it."""
    results: list[Figure] = []
    async with chromium() as browser:
        for size in SIZES[: bench.sized(len(SIZES), 1)]:
            bench.say(f"a run of {size:,} records")
            waited, missed = await seen_in_page(browser, address, url, size, bench.sized(20, 2))
            of_run = f"run of {size:,} records"
            results += spread(f"commit to page, {of_run}", waited, goal=at_most(50, "value"))
            results.append(Figure(name=f"out of sight when drawn, {of_run}", value=missed, unit=""))
    return results


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure a run of each size."""
    with bench.database() as url, bench.server(url) as server:
        yield from asyncio.run(figures(bench, url, server.address))
