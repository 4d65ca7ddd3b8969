"""How soon a reader sees what was committed: from the commit to the row in the run's page.

A program records a run into Postgres at 100 events a second, as in `live.py`; a page in headless
Chromium shows it, the latest call uppermost. A time is that of the tree's change, before the
browser paints. `make bench` runs it, as `python -m benchmarks.live_page`.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from time import perf_counter

from playwright.async_api import Browser, async_playwright
from rich.console import Console
from rich.table import Table

from benchmarks.live import (
    EVENTS_A_SECOND,
    SECONDS,
    Recording,
    recording_process,
    server,
    spread,
)
from benchmarks.viewer import browser_path
from tracer.clock import utc_now
from tracer.events import ToolCallStarted
from tracer.ids import new_id
from tracer.storage.embedded_postgres import start_embedded_postgres
from tracer.storage.migrate import upgrade
from tracer.storage.postgres_writer import PostgresWriter

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


async def record(writer: PostgresWriter, run: Recording) -> dict[str, float]:
    """Record calls at the rate that is to be kept; return when the start of each was committed."""
    committed = {}
    began = perf_counter()
    for number in range(EVENTS_A_SECOND * SECONDS // 2):
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


async def measured(browser: Browser, address: str, url: str, size: int) -> tuple[list[float], int]:
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
        committed = await record(writer, run)
        await page.wait_for_timeout(2_000)
        seen: dict[str, float] = await page.evaluate("window.seen")
        await page.close()
    waited = [seen[call] - at for call, at in committed.items() if call in seen]
    return waited, len(committed) - len(waited)


async def main(home: Path) -> None:
    """Measure, and print the table; `home` is an empty directory that any user may enter."""
    table = Table("from commit to page", title=f"{EVENTS_A_SECOND} events a second")
    for title in ("p50 ms", "p95 ms", "seen", "out of sight when drawn"):
        table.add_column(title, justify="right")
    postgres = start_embedded_postgres(home / "postgres")
    process = None
    try:
        await asyncio.to_thread(upgrade, postgres.url)
        process, address = server(postgres.url, home / "server")
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=browser_path(), args=options)
            for size in SIZES:
                waited, missed = await measured(browser, address, postgres.url, size)
                name = f"run of {size:,} records"
                table.add_row(name, *spread(waited), str(len(waited)), str(missed))
            await browser.close()
    finally:
        if process is not None:
            process.terminate()
            process.wait(timeout=30)
        postgres.stop()
    Console(width=110).print(table)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # as root, Postgres runs as another user
        asyncio.run(main(Path(folder)))
