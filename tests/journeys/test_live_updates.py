"""A run's page while the run is recorded at 100 events a second.

With `make torture ONLY=live` the test of memory runs for ten minutes.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.async_api import CDPSession, Page, Route, expect

from tests.journeys.conftest import Site
from tests.journeys.live_recording import LiveRecording, live_recording
from tests.journeys.tree_page import open_run, row, selected, settled_box
from tests.servers import start_server
from tests.torture.lengths import IS_LONG, say

SECONDS = 600.0 if IS_LONG else 4.0
MOST_GROWTH = 3_000_000
"""How many bytes a page may have more after thousands of changes; what it draws varies."""

KEYS_FROM_TOP_TO_BOTTOM = """async () => {
    const tree = document.querySelector('[role=tree]')
    const keys = new Set()
    const frame = () => new Promise(requestAnimationFrame)
    for (let top = 0; top <= tree.scrollHeight; top += tree.clientHeight / 2) {
        tree.scrollTop = top
        await frame()
        await frame()
        for (const item of tree.querySelectorAll('[role=treeitem]')) keys.add(item.dataset.key)
    }
    return [...keys]
}"""


@pytest.fixture
async def recording(site: Site) -> AsyncIterator[LiveRecording]:
    async with live_recording(site.database_url) as recording:
        yield recording


@pytest.mark.thorough
async def test_every_record_appears_after_a_restart_of_the_server(
    page: Page, database_url: str, tmp_path: Path
) -> None:
    server = start_server(database_url, tmp_path)
    try:
        async with live_recording(database_url) as recording:
            await recording.begin()
            await open_run(page, server.address, f"{recording.root}?level=all")
            await recording.go_on(1)
            await expect(row(page, recording.calls[-1])).to_be_visible()

            server.process.terminate()
            server.process.wait(timeout=60)
            await expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
            await recording.go_on(1)
            port = urlsplit(server.address).port
            assert port is not None
            server = start_server(database_url, tmp_path, port=port)
            await expect(page.get_by_text("The server answers again.")).to_be_visible()
            await recording.go_on(1)

            calls = [str(call) for call in recording.calls]
            await expect(row(page, calls[-1])).to_have_attribute("aria-setsize", str(len(calls)))
            shown = await page.evaluate(KEYS_FROM_TOP_TO_BOTTOM)
            assert [key for key in shown if key in calls] == calls
            await expect(page.get_by_role("alert")).to_have_count(0)
    finally:
        server.process.terminate()
        server.process.wait(timeout=60)


@pytest.mark.thorough
async def test_selection_scroll_and_focus_stay_while_rows_arrive(
    page: Page, site: Site, recording: LiveRecording
) -> None:
    await recording.begin(calls=100)
    watched = recording.calls[50]
    await open_run(page, site.address, f"{recording.root}?level=all", select=None)
    await page.evaluate("document.querySelector('[role=tree]').scrollTop = 1000")
    await row(page, watched).click()
    await expect(row(page, watched)).to_be_focused()
    before = await settled_box(row(page, watched))

    await recording.go_on(SECONDS if SECONDS < 60 else 60)

    await expect(row(page, watched)).to_have_attribute("aria-setsize", str(len(recording.calls)))
    assert await settled_box(row(page, watched)) == before
    await expect(selected(page)).to_have_attribute("data-key", str(watched))
    await expect(row(page, watched)).to_be_focused()


async def test_page_polls_if_the_event_stream_is_blocked(
    page: Page, site: Site, recording: LiveRecording
) -> None:
    async def no_stream(route: Route) -> None:
        await route.fulfill(status=502, body="a proxy that knows no streams")

    await page.route("**/events?*", no_stream)
    await recording.begin(calls=1)
    await open_run(page, site.address, recording.root)
    await recording.write(*recording.call())

    await expect(row(page, recording.calls[-1])).to_be_visible()
    await expect(page.get_by_role("alert")).to_have_count(0)


async def test_page_of_a_deleted_run_says_so(
    page: Page, site: Site, recording: LiveRecording
) -> None:
    await recording.begin(calls=1)
    await open_run(page, site.address, recording.root)
    await recording.writer.delete_run(recording.root)

    await expect(page.get_by_role("heading", name="Not found")).to_be_visible()


@pytest.mark.thorough
async def test_memory_does_not_grow_over_thousands_of_changes(
    page: Page, site: Site, recording: LiveRecording
) -> None:
    await recording.begin(calls=200)
    await open_run(page, site.address, recording.root, select=recording.calls[0])
    session = await page.context.new_cdp_session(page)
    await session.send("Performance.enable")
    attempts = await recording.try_again(2)
    await _expect_attempt(page, recording, attempts)
    before = await _memory(session)

    attempts = await recording.try_again(SECONDS, attempts)

    await _expect_attempt(page, recording, attempts)
    after = await _memory(session)
    kilobytes = [round(each["JSHeapUsedSize"] / 1000) for each in (before, after)]
    say("a page under 100 changes a second", changes=attempts, kilobytes=kilobytes)
    assert after["JSHeapUsedSize"] - before["JSHeapUsedSize"] < MOST_GROWTH
    assert after["Nodes"] <= before["Nodes"] * 1.1
    assert after["JSEventListeners"] <= before["JSEventListeners"] * 1.1


async def _expect_attempt(page: Page, recording: LiveRecording, attempts: int) -> None:
    """Wait until the page shows the latest attempt at the selected call, which is the first."""
    of_first = (attempts - 1) // len(recording.calls) * len(recording.calls) + 1
    fact = page.get_by_role("region", name="Details", exact=True).get_by_text(
        str(of_first), exact=True
    )
    await expect(fact.first).to_be_visible()


async def _memory(session: CDPSession) -> dict[str, float]:
    """Return the page's figures after all that is garbage was collected."""
    for _ in range(2):
        await session.send("HeapProfiler.collectGarbage")
    answer = await session.send("Performance.getMetrics")
    return {metric["name"]: metric["value"] for metric in answer["metrics"]}
