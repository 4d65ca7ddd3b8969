"""How long a reader waits for a run's page: 1,000 and 10,000 records in headless Chromium.

A server of its own on an embedded Postgres, a browser on the same machine. A page counts as usable
when its tree is drawn and the next frame has come. Then everything is opened, and each frame
scrolls by half a screen, the waterfall on. Beside the time that passed stands how long the page's
main thread worked, which other programs on the machine change little.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any
from uuid import UUID

from playwright.async_api import Browser, Page, async_playwright

from benchmarks.figures import Figure, at_most, p95
from benchmarks.surroundings import Bench
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
STATIC = ROOT / "api" / "static"
SIZES = (1_000, 10_000)
GOALS = {1_000: 700, 10_000: 1_000}
"""The most milliseconds until the page is usable."""

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
class PageCost:
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


async def measure(browser: Browser, address: str, root: UUID, records: int) -> PageCost:
    """Open a run's page again and again, each time as a reader who comes for the first time."""
    cost = PageCost(records, [], 0, [], [], 0)
    for _ in range(NAVIGATIONS):
        page, work = await _open(browser, f"{address}/runs/{root}")
        cost.usable.append(await page.evaluate(USABLE))
        cost.usable_work.append(await work())
        await page.context.close()
    page, work = await _open(browser, f"{address}/runs/{root}?level=all")
    await page.evaluate(USABLE)
    await page.wait_for_selector("[aria-level='6']", state="attached")
    before = await work()
    cost.frames = await page.evaluate(SCROLL)
    cost.frame_work = (await work() - before) / len(cost.frames)
    cost.nodes = await page.locator("*").count()
    await page.context.close()
    return cost


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


def browser_path() -> str:
    """Return where a browser is."""
    script = ROOT / "scripts" / "ensure_browser.sh"
    found = subprocess.run([script], check=True, capture_output=True, text=True)
    return found.stdout.split("\n")[-2]


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Give a browser."""
    options = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with (
        async_playwright() as playwright,
        await playwright.chromium.launch(executable_path=browser_path(), args=options) as browser,
    ):
        yield browser


async def pages(bench: Bench, address: str) -> list[PageCost]:
    """Return what the page of each size took."""
    found = []
    async with chromium() as browser:
        for size in SIZES[: bench.sized(len(SIZES), 1)]:
            bench.say(f"{size:,} records")
            root, events = run_of(size)
            async with aclosing(HttpWriter(address)) as writer:
                for start in range(0, len(events), 1_000):
                    answer = await writer.write(events[start : start + 1_000])
                    assert answer.refused == [], answer.refused[0]
            found.append(await measure(browser, address, root, size))
    return found


def bundle_size() -> int:
    """Return how many bytes the viewer's scripts and styles take up, packed."""
    files = [file for file in (STATIC / "assets").iterdir() if file.suffix in (".js", ".css")]
    return sum(len(gzip.compress(file.read_bytes())) for file in files)


def measured(bench: Bench) -> Iterator[Figure]:
    """Measure the page of each size."""
    with bench.database() as url, bench.server(url) as server:
        all_pages = asyncio.run(pages(bench, server.address))
    for each in all_pages:
        of_run = f"{each.records:,} records"
        goal = at_most(GOALS[each.records], "value")
        for name, milliseconds, wanted in (
            ("usable, p50", median(each.usable), goal),
            ("usable, worst", max(each.usable), None),
            ("usable: the page worked", median(each.usable_work), None),
            ("a frame, p50", median(each.frames), None),
            ("a frame, p95", p95(each.frames), None),
            ("a frame: the page worked", each.frame_work, None),
        ):
            yield Figure(name=f"{of_run}, {name}", value=milliseconds, unit="ms", goal=wanted)
        yield Figure(name=f"{of_run}: elements in the page", value=each.nodes, unit="")
    yield Figure(
        name="bundle, packed", value=bundle_size() / 1000, unit="kB", goal=at_most(200, "value")
    )
