"""The viewer's page of tool statistics."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from playwright.async_api import Locator, Page, expect

from tests.journeys.conftest import Records, Site
from tests.journeys.tree_page import expect_query, selected
from tests.sample_runs import sample_run
from tracer.clock import utc_now
from tracer.records import Status, new_id
from tracer.records.events import ErrorInfo, ToolCallFinished, ToolCallStarted


async def _call(
    records: Records,
    name: str,
    seconds: float,
    error: str | None = None,
    ago: timedelta = timedelta(),
) -> UUID:
    """Record a call of a tool that began so long ago and took so long, and return its id."""
    run = await records.record(sample_run(sub_plans=0, title=f"Calls {name}"[:80], finished=False))
    start, call = utc_now() - ago, new_id()
    ids: dict[str, Any] = {"root_plan_id": run.root, "plan_id": run.root, "step_id": run.step}
    await records.write(
        ToolCallStarted(at=start, **ids, tool_call_id=call, name=name, arguments="{}", position=1),
        ToolCallFinished(
            at=start + timedelta(seconds=seconds),
            **ids,
            tool_call_id=call,
            status=Status.SUCCEEDED if error is None else Status.FAILED,
            error=None if error is None else ErrorInfo(type="Broken", message=error),
        ),
    )
    await records.roll_up(run.root)
    return call


def _row(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


async def test_tools_page_shows_calls_failures_and_durations_of_each_tool(
    page: Page, site: Site, records: Records
) -> None:
    for seconds, error in [(1, None), (2, None), (3, None), (4, "it is stuck")]:
        await _call(records, "shown_tool", seconds, error)
    await page.goto(f"{site.address}/tools")

    cells = _row(page, "shown_tool").get_by_role("cell")
    await expect(cells).to_contain_text(["", "4", "1", "25%", "0", "2", "4s", "4s"])

    await page.get_by_role("searchbox", name="Find a tool").fill("OWN_T")
    await expect_query(page, name="OWN_T")
    await expect(page.get_by_role("rowheader")).to_have_text(["shown_tool"])
    await page.get_by_role("searchbox", name="Find a tool").fill("no tool")
    await expect(page.get_by_text("No tool has this name.")).to_be_visible()


@pytest.mark.thorough
async def test_link_from_a_tool_to_its_runs_preserves_the_time_range(
    page: Page, site: Site, records: Records
) -> None:
    await _call(records, "ranged_tool", 1)
    since = "2026-01-01T00:00:00.000Z"
    await page.goto(f"{site.address}/tools?tool=ranged_tool&from={since}")
    await page.get_by_role("link", name="Runs that started in this time and called it").click()

    await expect_query(page, **{"tool": "ranged_tool", "from": since})


@pytest.mark.thorough
async def test_tools_table_sorts_by_keyboard_with_the_order_in_the_link(
    page: Page, site: Site, records: Records
) -> None:
    for name, seconds in [("sorted_quick", 1), ("sorted_quick", 1), ("sorted_slow", 3_000)]:
        await _call(records, name, seconds)
    await page.goto(f"{site.address}/tools")
    await _expect_order(page, "sorted_quick", "sorted_slow")
    header = page.get_by_role("columnheader", name="p99")
    await header.get_by_role("button").focus()
    await page.keyboard.press("Enter")

    await expect(header).to_have_attribute("aria-sort", "descending")
    await _expect_order(page, "sorted_slow", "sorted_quick")
    await expect_query(page, sort="-p99Ms")
    await page.reload()
    await _expect_order(page, "sorted_slow", "sorted_quick")


async def _expect_order(page: Page, upper: str, lower: str) -> None:
    """Wait until one tool stands above another, whatever other tests have recorded meanwhile."""
    rows = page.get_by_role("rowheader").filter(has_text=re.compile(f"^({upper}|{lower})$"))
    await expect(rows).to_have_text([upper, lower])


async def test_a_tools_slowest_and_failed_calls_lead_to_their_runs(
    page: Page, site: Site, records: Records
) -> None:
    await _call(records, "led to", 1)
    slow = await _call(records, "led to", 90)
    failed = await _call(records, "led to", 2, "the pump is dry")
    await page.goto(f"{site.address}/tools")
    await page.get_by_role("link", name="led to", exact=True).click()
    await expect_query(page, tool="led to")

    slowest = page.get_by_role("region", name="Slowest calls").get_by_role("listitem")
    await expect(slowest.first).to_contain_text("1m 30s")
    await expect(slowest.first.get_by_role("link")).to_have_attribute(
        "href", f"/runs/{await _run_of(site, slow)}?select={slow}"
    )
    failures = page.get_by_role("region", name="Latest failed calls").get_by_role("listitem")
    await expect(failures).to_have_count(1)
    await expect(failures).to_contain_text("Broken: the pump is dry")
    await failures.get_by_role("link").click()
    await expect(selected(page)).to_have_attribute("data-key", str(failed))


async def _run_of(site: Site, call: UUID) -> object:
    return (await site.read(f"/api/tool-calls/{call}"))["rootPlanId"]


@pytest.mark.thorough
async def test_a_tools_charts_can_be_read_as_a_table(
    page: Page, site: Site, records: Records
) -> None:
    await _call(records, "charted", 1)
    await _call(records, "charted", 3, "out of order")
    await page.goto(f"{site.address}/tools?tool=charted")

    await expect(page.get_by_role("img", name="Calls over time")).to_be_visible()
    await expect(page.get_by_role("img", name="Durations over time")).to_be_visible()
    await page.get_by_text("As a table").focus()
    await page.keyboard.press("Enter")
    table = page.get_by_role("region", name="As a table")
    await expect(table.get_by_role("columnheader")).to_have_text(
        ["From", "Calls", "Failed", "Abandoned", "p50", "p95", "p99", "own p95"]
    )
    await expect(table.get_by_role("row").last).to_contain_text("3s")


@pytest.mark.thorough
async def test_time_range_limits_the_tool_statistics_and_is_in_the_link(
    page: Page, site: Site, records: Records
) -> None:
    await _call(records, "old_tool", 1, ago=timedelta(days=90))
    await _call(records, "recent_tool", 1)
    await page.goto(f"{site.address}/tools")
    await expect(_row(page, "recent_tool")).to_be_visible()
    await expect(page.get_by_role("combobox", name="Time")).to_have_value("30d")
    await expect(_row(page, "old_tool")).to_have_count(0)

    await page.get_by_role("combobox", name="Time").select_option("all")
    await expect_query(page, last="all")
    await page.reload()
    await expect(_row(page, "old_tool")).to_be_visible()

    await page.get_by_role("combobox", name="Time").select_option("between")
    await page.get_by_label("To", exact=True).fill("1960-01-01T00:00")
    await expect(page.get_by_text("No tool was called in this time.")).to_be_visible()
    await expect_query(page, to="1960-01-01T00:00:00.000Z")
    await page.get_by_role("button", name="All time").click()
    await expect(_row(page, "old_tool").get_by_role("cell").nth(1)).to_have_text("1")


@pytest.mark.thorough
async def test_page_of_a_tool_that_was_never_called_says_so(page: Page, site: Site) -> None:
    await page.goto(f"{site.address}/tools?tool=no/such%20tool")

    await expect(page.get_by_text("This tool was not called in this time.")).to_be_visible()
