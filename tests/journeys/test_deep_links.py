"""The viewer stores the state of a page in its URL."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from playwright.async_api import Page, expect

from tests.journeys.conftest import Records, Site
from tests.journeys.tree_page import (
    bar,
    expect_query,
    extent,
    open_run,
    query_of,
    row,
    search_field,
    selected,
)
from tests.sample_runs import sample_run


async def test_link_restores_the_state_of_the_page(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root)
    await row(page, run.opening_calls[0]).locator("[data-arrow]").click()
    await row(page, run.opening_calls[1]).click()
    await search_field(page).fill("cuff")
    await page.get_by_role("button", name="Zoom in").click()
    await expect_query(page, "select", "closed", "q", "time")
    assert len(urlsplit(page.url).query) < 120
    shown = await extent(page, run.failed_call)

    await page.goto("about:blank")
    await page.go_back()
    await expect(selected(page)).to_have_attribute("data-key", str(run.opening_calls[1]))
    await expect(row(page, run.sub_plans[0])).to_have_count(0)
    await expect(row(page, run.sub_plans[1])).to_be_visible()
    await expect(row(page, run.failed_call).locator("mark")).to_have_text("cuff")
    assert await extent(page, run.failed_call) == shown


@pytest.mark.thorough
async def test_back_and_forward_visit_only_earlier_selections(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root)
    visited = [run.step, run.failed_call, run.opening_calls[1]]
    for key in visited:
        await row(page, key).click()
        await expect_query(page, select=str(key))
    await search_field(page).fill("check")
    await row(page, run.opening_calls[0]).locator("[data-arrow]").click()
    await page.get_by_role("button", name="Waterfall").click()
    await expect_query(page, waterfall="off", q="check")

    await page.go_back()
    await expect(selected(page)).to_have_attribute("data-key", str(run.failed_call))
    await expect(search_field(page)).to_have_value("")
    await expect(bar(page, run.root)).to_be_visible()
    await page.go_back()
    await expect(selected(page)).to_have_attribute("data-key", str(run.step))
    await page.go_forward()
    await page.go_forward()
    await expect(selected(page)).to_have_attribute("data-key", str(run.opening_calls[1]))
    await expect(search_field(page)).to_have_value("check")
    await expect(bar(page, run.root)).to_have_count(0)
    await expect(row(page, run.sub_plans[0])).to_have_count(0)


@pytest.mark.thorough
async def test_moving_by_arrow_keys_adds_no_history_entries(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root)
    before = await page.evaluate("history.length")
    await page.get_by_role("tree").focus()
    for _ in range(6):
        await page.keyboard.press("ArrowDown")

    await expect_query(page, select=str(run.opening_calls[1]))
    assert await page.evaluate("history.length") == before


@pytest.mark.thorough
async def test_link_contains_the_open_level_and_rows_opened_or_closed_by_hand(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await page.goto(f"{site.address}/runs/{run.root}?records=all&level=rounds")
    await expect(row(page, run.think_act)).to_have_attribute("aria-expanded", "false")
    await row(page, run.think_act).locator("[data-arrow]").click()
    await expect_query(page, "open")
    query = query_of(page)
    assert query["level"] == "rounds"
    assert str(run.think_act).endswith(query["open"])

    await page.reload()
    await expect(row(page, run.failed_call)).to_be_visible()
    await expect(row(page, run.sub_plans[0])).to_have_count(0)


@pytest.mark.thorough
async def test_link_with_invalid_parameters_opens_the_run(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    query = "level=-1&open=x.y..&closed=%F0&time=9-1&waterfall=<b>&q=&select="
    await page.goto(f"{site.address}/runs/{run.root}?{query}")

    await expect(row(page, run.opening_calls[1])).to_be_visible()
    await expect(selected(page)).to_have_attribute("data-key", str(run.root))
