"""The waterfall of durations on the viewer's run page."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from tests.journeys.conftest import Records, Site
from tests.journeys.tree_page import (
    bar,
    details,
    expect_query,
    extent,
    open_run,
    query_of,
    row,
    settled_box,
)
from tests.sample_runs import START, sample_run
from tracer.records import Status, new_id
from tracer.records.events import ToolCallFinished, ToolCallStarted


async def test_bars_show_times_and_parallel_calls(page: Page, site: Site, records: Records) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root)
    calls = [run.failed_call, *run.opening_calls]
    extents = [await extent(page, call) for call in calls]
    sub_plan, opener = await extent(page, run.sub_plans[1]), extents[2]

    starts, ends = [start for start, _ in extents], [end for _, end in extents]
    assert starts == [pytest.approx(starts[0], abs=1)] * 3
    assert ends == sorted(ends)
    assert len(set(ends)) == 3
    assert opener[0] < sub_plan[0] < sub_plan[1] < opener[1]


@pytest.mark.thorough
async def test_bar_shows_own_time_and_the_critical_path(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root, select=run.opening_calls[1])
    first, second = run.opening_calls

    await expect(bar(page, second)).to_have_css("background-image", re.compile("gradient"))
    await bar(page, second).hover()
    await expect(bar(page, second)).to_have_attribute("title", re.compile("^70ms · 10ms of it"))
    await expect(bar(page, second)).not_to_contain_class("critical")
    await page.get_by_role("button", name="critical path").click()
    await expect(bar(page, second)).to_contain_class("critical")
    await expect(bar(page, first)).not_to_contain_class("critical")
    for words in ("10ms of it in sub-agents", "on the critical path", "30ms after the run's start"):
        await expect(details(page)).to_contain_text(words)


@pytest.mark.thorough
async def test_time_in_sub_agents_of_an_open_row_is_so_far(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run(finished=False))
    await open_run(page, site.address, run.root)

    await expect(details(page)).to_contain_text("20ms of it in sub-agents so far")


@pytest.mark.thorough
async def test_bars_are_visible_for_records_with_unusual_times(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    instant, backwards, later = new_id(), new_id(), new_id()
    for call, start, end in [
        (instant, START, START),
        (backwards, START + timedelta(seconds=9), START),
        (later, START + timedelta(days=400), START + timedelta(days=401)),
    ]:
        ids: dict[str, Any] = {"root_plan_id": run.root, "plan_id": run.root, "step_id": run.step}
        await records.write(
            ToolCallStarted(at=start, **ids, tool_call_id=call, name="odd", position=9),
            ToolCallFinished(at=end, **ids, tool_call_id=call, status=Status.SUCCEEDED),
        )
    await open_run(page, site.address, run.root)

    for call in (instant, backwards, run.failed_call):
        left, right = await extent(page, call)
        assert right - left >= 2
    lane = await settled_box(row(page, later).locator(".lane"))
    assert (await extent(page, later))[1] <= lane["x"] + lane["width"] + 1


@pytest.mark.thorough
async def test_bar_of_a_running_record_grows(page: Page, site: Site, records: Records) -> None:
    run = sample_run(finished=False, start=datetime.now(UTC))
    await records.record(run)
    await open_run(page, site.address, run.root)
    bars = [bar(page, call) for call in (run.opening_calls[0], run.failed_call)]

    await page.wait_for_function(
        "([open, ended]) =>"
        " open.getBoundingClientRect().right > ended.getBoundingClientRect().right + 20",
        arg=[await each.element_handle() for each in bars],
    )


async def test_waterfall_zooms_by_buttons_keys_wheel_and_a_drawn_range(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root)
    await row(page, run.failed_call).click()
    start, end = await extent(page, run.failed_call)
    whole = end - start

    await page.get_by_role("button", name="Zoom in").click()
    await page.keyboard.press("+")
    await page.keyboard.press("Shift+ArrowLeft")
    await expect_query(page, "time")
    zoomed = await extent(page, run.failed_call)
    assert zoomed[1] - zoomed[0] > whole
    await page.keyboard.press("0")
    await expect_query(page, time=None)

    await page.mouse.move(start + 5, 300)
    await page.keyboard.down("Control")
    await page.mouse.wheel(0, -300)
    await page.keyboard.up("Control")
    await expect_query(page, "time")
    assert await page.evaluate("window.devicePixelRatio") == 1
    await page.get_by_role("button", name="Show the full time range").click()
    await expect_query(page, time=None)

    axis = await settled_box(page.locator(".axis"))
    await page.mouse.move(axis["x"] + axis["width"] * 0.25, axis["y"] + 5)
    await page.mouse.down()
    await page.mouse.move(axis["x"] + axis["width"] * 0.5, axis["y"] + 5)
    await page.mouse.up()
    await expect_query(page, "time")
    from_, to = (float(part) for part in query_of(page)["time"].split("-"))
    assert (to - from_) == pytest.approx(120 / 4, rel=0.1)
    await page.keyboard.press("z")
    start, end = await extent(page, run.failed_call)
    assert end - start > axis["width"] * 0.7


async def _lane(page: Page, key: object) -> tuple[float, float, float]:
    """Return where a row's lane begins, how wide it is, and its middle's height."""
    box = await settled_box(row(page, key).locator(".lane"))
    return box["x"], box["width"], box["y"] + box["height"] / 2


@pytest.mark.thorough
async def test_dragging_a_zoomed_waterfall_moves_the_time_and_selects_nothing(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await page.goto(f"{site.address}/runs/{run.root}?time=40-80&select={run.root}")
    left, width, height = await _lane(page, run.opening_calls[1])
    before = await extent(page, run.opening_calls[0])

    await page.mouse.move(left + width / 2, height)
    await page.mouse.down()
    await page.mouse.move(left + width / 2 + 2, height)
    await page.mouse.move(left + width / 4, height + 60, steps=5)
    await page.mouse.up()
    await expect_query(page, time="50-90", select=str(run.root))
    assert (await extent(page, run.opening_calls[0]))[1] < before[1]

    await page.mouse.move(left + width * 0.1, height)
    await page.mouse.down()
    await page.mouse.move(left + width * 4, height, steps=5)
    await page.mouse.up()
    await expect_query(page, time="0-40", select=str(run.root))
    await page.mouse.click(left + width / 2, height)
    await expect_query(page, time="0-40", select=str(run.opening_calls[1]))


@pytest.mark.thorough
async def test_dragging_an_unzoomed_waterfall_selects_the_row(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root)
    left, width, height = await _lane(page, run.failed_call)

    await page.mouse.move(left + width / 2, height)
    await page.mouse.down()
    await page.mouse.move(left + width / 4, height, steps=3)
    await page.mouse.up()
    await expect_query(page, time=None, select=str(run.failed_call))


@pytest.mark.thorough
async def test_horizontal_swipe_moves_the_time_of_the_waterfall(
    browser: Browser, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    context = await browser.new_context(
        viewport={"width": 360, "height": 700}, has_touch=True, locale="en-US"
    )
    page = await context.new_page()
    await page.goto(f"{site.address}/runs/{run.root}?time=40-80&waterfall=on")
    left, width, height = await _lane(page, run.root)
    session = await context.new_cdp_session(page)

    async def touch(kind: str, *touches: float) -> None:
        points = [{"x": x, "y": height} for x in touches]
        await session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    await touch("touchStart", left + width * 0.75)
    for part in (0.7, 0.6, 0.5):
        await touch("touchMove", left + width * part)
    await touch("touchEnd")
    await expect_query(page, time="50-90")
    await context.close()


@pytest.mark.thorough
async def test_waterfall_can_be_hidden_and_starts_hidden_on_small_screens(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root)
    await expect(bar(page, run.root)).to_be_visible()
    await page.get_by_role("button", name="Waterfall").click()
    await expect(bar(page, run.root)).to_have_count(0)
    await expect_query(page, waterfall="off")

    await page.set_viewport_size({"width": 360, "height": 700})
    await open_run(page, site.address, run.root)
    await expect(bar(page, run.root)).to_have_count(0)
    await page.get_by_role("button", name="Waterfall").click()
    await expect(bar(page, run.root)).to_be_visible()
    await expect_query(page, waterfall="on")
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.thorough
async def test_a_closed_row_says_how_many_failures_it_hides(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root)
    await expect(row(page, run.think_act)).not_to_contain_text("failure below")

    await row(page, run.step).locator("[data-arrow]").click()
    await expect(row(page, run.step)).to_contain_text("1 failure below")


@pytest.mark.thorough
@pytest.mark.parametrize("width", [360, 1280])
async def test_time_axis_has_at_least_two_complete_labels(
    page: Page, site: Site, demo_run: str, width: int
) -> None:
    await page.set_viewport_size({"width": width, "height": 800})
    # The last of the names is near the end, where it has no room after its line.
    await page.goto(f"{site.address}/runs/{demo_run}?waterfall=on&time=0-104")
    names = page.locator("[data-axis] .tick")
    await expect(names.nth(1)).to_be_visible()
    outside = await names.evaluate_all(
        """names => names.filter(each => {
            const [name, axis] = [each, each.parentElement].map(it => it.getBoundingClientRect())
            return name.left < axis.left - 1 || name.right > axis.right + 1
        }).length"""
    )

    assert outside == 0
