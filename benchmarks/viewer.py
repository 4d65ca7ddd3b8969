"""How long a reader waits for the run list, and for a run of 1,000 or 10,000 records, in Chromium.

A server of its own on an embedded Postgres, a browser on the same machine. A page counts as usable
when its tree is drawn and the next frame appears; the yardstick, opened in turn, is a static page
with a table of 1,000 rows. Then everything is opened, and each frame scrolls by half a screen, the
waterfall on. The benchmark also reports how long the page's main thread worked, which other
programs on the machine change little.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from threading import Thread
from uuid import UUID

from playwright.async_api import Browser, Page, async_playwright

from benchmarks.figures import Figure, at_most, p95
from benchmarks.other_forms import events_of
from benchmarks.surroundings import Bench
from benchmarks.workload import trace
from tracer.storage.http import HttpWriter

ROOT = Path(__file__).parents[1]
STATIC = ROOT / "api" / "static"
SIZES = (1_000, 10_000)
GOALS = {1_000: 1.3, 10_000: 2.5}
"""How many times as long as the static page it takes at most until the page is usable."""
STATIC_PAGE = "<!doctype html><title>Table</title><table>{}</table>".format(
    "".join(f"<tr>{''.join(f'<td>{row}.{cell}' for cell in range(7))}" for row in range(1_000))
)

NAVIGATIONS = 7
TREE_ROW = "[role=treeitem]"
USABLE = """selector => new Promise(done => {
    const look = () => document.querySelector(selector)
        ? requestAnimationFrame(() => done(performance.now()))
        : requestAnimationFrame(look)
    look()
})"""

LOADED = """() => Object.fromEntries(
    performance.getEntriesByType('resource')
        .filter(({ name }) => /\\/assets\\/.*\\.(js|css)$/.test(name))
        .map(({ name, encodedBodySize }) => [name.split('/').at(-1), encodedBodySize]))"""

SCROLL = """async () => {
    const tree = document.querySelector('[role=tree]')
    const times = []
    const step = tree.clientHeight / 2
    let before = await new Promise(requestAnimationFrame)
    while (times.length < 200) {
        tree.scrollBy(0, step)
        if (tree.scrollTop + tree.clientHeight > tree.scrollHeight - 2) tree.scrollTop = 0
        const now = await new Promise(requestAnimationFrame)
        times.push(now - before)
        before = now
    }
    return times
}"""


@dataclass
class PageCost:
    """The measurements of one run's page."""

    records: int
    usable: list[float]
    """Milliseconds from navigation to a usable tree."""
    static: list[float]
    """Milliseconds from navigation to the drawn static page."""
    nodes: int
    """Elements in the page with everything open."""
    frames: list[float]
    """Milliseconds between frames while scrolling."""
    usable_work: list[float]
    """Milliseconds that the page's main thread worked until its tree was usable."""
    frame_work: float
    """Milliseconds that it worked for a frame."""
    first_load: dict[str, int]
    """The packed bytes of each script and style that the page loads first."""


async def measure(
    browser: Browser, address: str, static: str, root: UUID, records: int
) -> PageCost:
    """Open a run's page and the static page in turn, each time in a browser without a cache."""
    cost = PageCost(records, [], [], 0, [], [], 0, {})
    for _ in range(NAVIGATIONS):
        page, _ = await _open(browser, static)
        cost.static.append(await page.evaluate(USABLE, "tr:last-child td"))
        await page.context.close()
        page, work = await _open(browser, f"{address}/runs/{root}")
        cost.usable.append(await page.evaluate(USABLE, TREE_ROW))
        cost.usable_work.append(await work())
        cost.first_load = await page.evaluate(LOADED)
        await page.context.close()
    page, work = await _open(browser, f"{address}/runs/{root}?level=all")
    await page.evaluate(USABLE, TREE_ROW)
    await page.wait_for_selector("[aria-level='6']", state="attached")
    before = await work()
    cost.frames = await page.evaluate(SCROLL)
    cost.frame_work = (await work() - before) / len(cost.frames)
    cost.nodes = await page.locator("*").count()
    await page.context.close()
    return cost


@dataclass
class ListCost:
    """The measurements of the run list."""

    usable: list[float]
    """Milliseconds from navigation to the first row."""
    first_load: dict[str, int]
    """The packed bytes of each script and style that the list loads first."""


async def measure_list(browser: Browser, address: str) -> ListCost:
    """Open the run list repeatedly, each time in a browser without a cache."""
    cost = ListCost([], {})
    for _ in range(NAVIGATIONS):
        page, _ = await _open(browser, f"{address}/runs")
        cost.usable.append(await page.evaluate(USABLE, "main tbody a"))
        await page.wait_for_load_state("networkidle")
        cost.first_load = await page.evaluate(LOADED)
        await page.context.close()
    return cost


async def _open(browser: Browser, address: str) -> tuple[Page, Callable[[], Awaitable[float]]]:
    """Go to a page. Returns also how to measure the work of its main thread since."""
    context = await browser.new_context(viewport={"width": 1440, "height": 900})
    page = await context.new_page()
    session = await context.new_cdp_session(page)
    await session.send("Performance.enable", {"timeDomain": "threadTicks"})

    async def work() -> float:
        answer = await session.send("Performance.getMetrics")
        values = {metric["name"]: metric["value"] for metric in answer["metrics"]}
        return float(values["TaskDuration"]) * 1000

    await page.goto(address, wait_until="commit")
    return page, work


def browser_path() -> str:
    """Return where a browser is."""
    script = ROOT / "scripts" / "ensure_browser.sh"
    process = subprocess.run([script], check=True, capture_output=True, text=True)
    return process.stdout.split("\n")[-2]


class _StaticPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(STATIC_PAGE.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def static_page() -> Iterator[str]:
    """Serve the static page, and give its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _StaticPage) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Give a browser."""
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with (
        async_playwright() as playwright,
        await playwright.chromium.launch(executable_path=browser_path(), args=options) as browser,
    ):
        yield browser


async def pages(bench: Bench, address: str, static: str) -> tuple[list[PageCost], ListCost]:
    """Return what the page of each size took, and what the list of these runs took."""
    measurements = []
    async with chromium() as browser:
        for size in SIZES[: bench.sized(len(SIZES), 1)]:
            bench.say(f"{size:,} records")
            events = events_of(trace(bench.seed, size))
            root = events[0].root_plan_id
            async with aclosing(HttpWriter(address)) as writer:
                for start in range(0, len(events), 1_000):
                    answer = await writer.write(events[start : start + 1_000])
                    assert answer.refused == [], answer.refused[0]
            measurements.append(await measure(browser, address, static, root, size))
        return measurements, await measure_list(browser, address)


def largest_lazy(loaded: Collection[str]) -> int:
    """Return the packed bytes of the largest script or style that is loaded on demand."""
    files = [file for file in (STATIC / "assets").iterdir() if file.suffix in (".js", ".css")]
    return max(len(gzip.compress(file.read_bytes())) for file in files if file.name not in loaded)


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure the page of each size."""
    with bench.database() as url, bench.server(url) as server, static_page() as table:
        all_pages, run_list = asyncio.run(pages(bench, server.address, table))
    for each in all_pages:
        of_run = f"{each.records:,} records"
        static = median(each.static)
        yield Figure(
            name=f"{of_run}, usable, p50",
            value=median(each.usable),
            unit="ms",
            yardstick="a static page",
            ratio=median(each.usable) / static,
            goal=at_most(GOALS[each.records]),
        )
        for name, milliseconds, wanted in (
            ("the static page, p50", static, None),
            ("usable, worst", max(each.usable), None),
            ("usable: the page worked", median(each.usable_work), None),
            ("a frame, p50", median(each.frames), None),
            ("a frame, p95", p95(each.frames), None),
            ("a frame: the page worked", each.frame_work, at_most(12, "value")),
        ):
            yield Figure(name=f"{of_run}, {name}", value=milliseconds, unit="ms", goal=wanted)
        yield Figure(name=f"{of_run}: elements in the page", value=each.nodes, unit="")
    loaded = all_pages[0].first_load
    yield Figure(name="the list, usable, p50", value=median(run_list.usable), unit="ms")
    for name, size, most in (
        ("the list, first load, packed", sum(run_list.first_load.values()), 150),
        ("a run's page, first load, packed", sum(loaded.values()), 240),
        ("largest lazy chunk, packed", largest_lazy(loaded), 100),
    ):
        yield Figure(name=name, value=size / 1000, unit="kB", goal=at_most(most, "value"))
