"""How long a reader waits for a run's page: 1,000 and 10,000 records in headless Chromium.

A server of its own on an embedded Postgres, a browser on the same machine. A page counts as usable
when its tree is drawn and the next frame has come. Then everything is opened, and each frame
scrolls by half a screen, the waterfall on. Beside the time that passed stands how long the page's
main thread worked, which other programs on the machine change little. `make bench` runs it.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median, quantiles
from typing import Any
from uuid import UUID

from playwright.async_api import Browser, Page, async_playwright
from rich.console import Console
from rich.table import Table

from tracer.clock import stepping_clock
from tracer.events import (
    ChosenToolCall,
    ErrorInfo,
    Event,
    PlanFinished,
    PlanStarted,
    StepFinished,
    StepStarted,
    ThoughtRecorded,
    ThoughtStarted,
    ToolCallFinished,
)
from tracer.ids import new_id
from tracer.status import Reason, Status
from tracer.storage.http_writer import HttpWriter

ROOT = Path(__file__).parents[1]
SIZES = (1_000, 10_000)
NAVIGATIONS = 7
CALLS = 6
"""How many calls a round chooses; one of them opens a sub-plan with a step, a round and calls."""

USABLE = """() => new Promise(done => {
    const look = () => document.querySelector('[role=treeitem]')
        ? requestAnimationFrame(() => done(performance.now()))
        : requestAnimationFrame(look)
    look()
})"""

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
class Figures:
    """What one run's page took."""

    records: int
    usable: list[float]
    """Milliseconds from navigation to a usable tree."""
    nodes: int
    """Elements in the page with everything open."""
    frames: list[float]
    """Milliseconds between frames while scrolling."""
    usable_work: list[float]
    """Milliseconds that the page's main thread worked until its tree was usable."""
    frame_work: float
    """Milliseconds that it worked for a frame."""


def run_of(records: int) -> tuple[UUID, list[Event]]:
    """Return a run of about so many records: rounds of calls, some failed, and sub-plans."""
    root = new_id()
    clock = stepping_clock(datetime(2026, 1, 1, tzinfo=UTC), timedelta(milliseconds=3))
    events: list[Event] = []
    count = 0

    def plan(plan_id: UUID, depth: int, wanted: int, **opener: Any) -> None:
        nonlocal count
        place: dict[str, Any] = {"root_plan_id": root, "plan_id": plan_id}
        title = f"Review of week {count}"
        events.append(PlanStarted(at=clock(), **place, **opener, title=title, depth=depth))
        count += 1
        position = 0
        while position == 0 or count < wanted:
            step(place, position, depth, wanted)
            position += 1
        events.append(PlanFinished(at=clock(), **place, status=Status.SUCCEEDED, summary="well"))

    def step(place: dict[str, Any], position: int, depth: int, wanted: int) -> None:
        nonlocal count
        place = {**place, "step_id": new_id()}
        events.append(StepStarted(at=clock(), **place, position=position, agent_name="nurse"))
        count += 1
        for number in range(3 if depth == 0 else 1):
            act(place, number, depth, wanted)
        events.append(StepFinished(at=clock(), **place, status=Status.SUCCEEDED, result="fine"))

    def act(place: dict[str, Any], position: int, depth: int, wanted: int) -> None:
        nonlocal count
        place = {**place, "think_act_id": new_id()}
        calls = [new_id() for _ in range(CALLS)]
        events.append(ThoughtStarted(at=clock(), **place, position=position, messages="[]"))
        events.append(
            ThoughtRecorded(
                at=clock(),
                **place,
                status=Status.SUCCEEDED,
                thought="I look at the readings of the week, one after the other. " * 4,
                model="scripted",
                input_tokens=900,
                output_tokens=80,
                tool_calls=tuple(
                    ChosenToolCall(
                        tool_call_id=call,
                        name=f"look_up_{number}",
                        arguments=f'{{"patient": "p-{count}", "week": {number}, "all": true}}',
                        provider_call_id="call_0",
                    )
                    for number, call in enumerate(calls)
                ),
            )
        )
        count += 1 + CALLS
        for number, call in enumerate(calls):
            if number == CALLS - 1 and depth < 3:
                opener = {"parent_plan_id": place["plan_id"], "tool_call_id": call}
                plan(new_id(), depth + 1, 0, **opener)
            failed = (count + number) % 97 == 0
            error = ErrorInfo(type="ValueError", message="the cuff is loose", stack=None)
            events.append(
                ToolCallFinished(
                    at=clock(),
                    **place,
                    tool_call_id=call,
                    status=Status.FAILED if failed else Status.SUCCEEDED,
                    reason=Reason.TOOL_ERROR if failed else None,
                    error=error if failed else None,
                    result='{"readings": [' + "[152, 95, 78], " * 30 + "[]]}",
                )
            )

    plan(root, 0, records)
    return root, events


@contextmanager
def server() -> Iterator[str]:
    """Give the address of a server with an empty database, and end it."""
    with tempfile.TemporaryDirectory(prefix="tracer-bench-") as folder:
        home = Path(folder)
        home.chmod(0o711)  # The embedded server is another user where this one is root.
        log = home / "server.log"
        environment = {**os.environ, "TRACER_HOME": folder}
        environment.pop("TRACER_DATABASE_URL", None)
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "api.cli", "serve", "--port", "0"],
                env=environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            while not (found := re.search(r"listens on (http://\S+)", log.read_text())):
                if process.poll() is not None:
                    raise RuntimeError(log.read_text())
                try:
                    process.wait(timeout=0.05)
                except subprocess.TimeoutExpired:
                    continue
            yield found[1]
        finally:
            process.terminate()
            process.wait(timeout=30)


async def measure(browser: Browser, address: str, root: UUID, records: int) -> Figures:
    """Open a run's page again and again, each time as a reader who comes for the first time."""
    figures = Figures(records, [], 0, [], [], 0)
    for _ in range(NAVIGATIONS):
        page, work = await _open(browser, f"{address}/runs/{root}")
        figures.usable.append(await page.evaluate(USABLE))
        figures.usable_work.append(await work())
        await page.context.close()
    page, work = await _open(browser, f"{address}/runs/{root}?level=all")
    await page.evaluate(USABLE)
    await page.wait_for_selector("[aria-level='6']", state="attached")
    before = await work()
    figures.frames = await page.evaluate(SCROLL)
    figures.frame_work = (await work() - before) / len(figures.frames)
    figures.nodes = await page.locator("*").count()
    await page.context.close()
    return figures


async def _open(browser: Browser, address: str) -> tuple[Page, Callable[[], Awaitable[float]]]:
    """Go to a page; with it comes what tells how long its main thread has worked since."""
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


def show(all_figures: list[Figures]) -> None:
    """Print a table of them."""
    table = Table(title="A run's page")
    table.add_column("records", justify="right")
    for name in ("usable, ms (median)", "worst", "worked", "frame, ms (p50)", "p95", "worked"):
        table.add_column(name, justify="right")
    table.add_column("elements", justify="right")
    for each in all_figures:
        p95 = quantiles(each.frames, n=20)[-1]
        usable = (median(each.usable), max(each.usable), median(each.usable_work))
        row = (*usable, median(each.frames), p95, each.frame_work, each.nodes)
        table.add_row(f"{each.records:,}", *(f"{value:,.0f}" for value in row))
    Console().print(table)


def browser_path() -> str:
    """Return where a browser is."""
    script = ROOT / "scripts" / "ensure_browser.sh"
    found = subprocess.run([script], check=True, capture_output=True, text=True)
    return found.stdout.split("\n")[-2]


async def main() -> None:
    """Measure the page of each size."""
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    all_figures = []
    with server() as address:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=browser_path(), args=options)
            for size in SIZES:
                root, events = run_of(size)
                async with aclosing(HttpWriter(address)) as writer:
                    for start in range(0, len(events), 1_000):
                        answer = await writer.write(events[start : start + 1_000])
                        assert answer.refused == [], answer.refused[0]
                all_figures.append(await measure(browser, address, root, size))
            await browser.close()
    show(all_figures)


if __name__ == "__main__":
    asyncio.run(main())
