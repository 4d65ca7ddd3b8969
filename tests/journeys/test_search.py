"""The search within one run on the viewer's run page."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from tests.journeys.conftest import Records, Site
from tests.journeys.tree_page import (
    bar,
    details,
    expect_query,
    open_run,
    row,
    search_field,
    selected,
)
from tests.sample_runs import START, SampleRun, sample_run
from tracer.records import Status, new_id
from tracer.records.events import ToolCallFinished, ToolCallStarted


async def _with_results(records: Records, *results: str) -> SampleRun:
    """Record a run with calls of the tool `café_menu` that had these results."""
    run = await records.record(sample_run(sub_plans=0, finished=False))
    for result in results:
        ids: dict[str, Any] = {"root_plan_id": run.root, "plan_id": run.root, "step_id": run.step}
        call = new_id()
        await records.write(
            ToolCallStarted(at=START, **ids, tool_call_id=call, name="café_menu", position=9),
            ToolCallFinished(
                at=START, **ids, tool_call_id=call, status=Status.SUCCEEDED, result=result
            ),
        )
        run.opening_calls.append(call)
    return run


async def test_hits_are_counted_and_marked_in_every_pane(
    page: Page, site: Site, records: Records
) -> None:
    run = await _with_results(records, "tea", "the NEEDLE is in here", "tea")
    await open_run(page, site.address, run.root)
    await search_field(page).fill("needle")
    hit = run.opening_calls[1]

    await expect(page.get_by_role("search")).to_contain_text("1 hit")
    await expect(row(page, hit).locator("mark")).to_have_text("NEEDLE")
    await expect(bar(page, hit)).to_contain_class("hit")
    await expect(page.get_by_role("tree").locator("mark")).to_have_count(1)
    await page.keyboard.press("Enter")
    await expect(details(page).get_by_role("region", name="Result").locator("mark")).to_have_text(
        "NEEDLE"
    )


@pytest.mark.thorough
async def test_search_ignores_case_and_accents_and_enter_advances(
    page: Page, site: Site, records: Records
) -> None:
    run = await _with_results(records, "one", "two", "three")
    await open_run(page, site.address, run.root)
    await page.keyboard.press("/")
    await page.keyboard.type("CAFE")
    await expect(page.get_by_role("search")).to_contain_text("3 hits")

    for key, index in [("Enter", 0), ("Enter", 1), ("Enter", 2), ("Enter", 0), ("Shift+Enter", 2)]:
        await page.keyboard.press(key)
        await expect(selected(page)).to_have_attribute("data-key", str(run.opening_calls[index]))
        await expect(page.get_by_role("search")).to_contain_text(f"{index + 1} of 3")
        await expect(search_field(page)).to_be_focused()
    await page.get_by_role("button", name="Next hit").click()
    await expect(selected(page)).to_have_attribute("data-key", str(run.opening_calls[0]))


@pytest.mark.thorough
async def test_hit_in_a_collapsed_row_is_counted_and_revealed(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run(sub_plans=100))
    await open_run(page, site.address, run.root)
    await row(page, run.step).locator("[data-arrow]").click()
    await expect(row(page, run.think_act)).to_have_count(0)

    await search_field(page).fill("Check 77")
    await expect(row(page, run.step)).to_contain_text("1 hit below")
    await page.keyboard.press("Enter")
    await expect(selected(page)).to_have_attribute("data-key", str(run.sub_plans[77]))
    await expect(row(page, run.sub_plans[77])).to_be_in_viewport()


@pytest.mark.thorough
async def test_escape_ends_the_search_and_returns_to_the_tree(
    page: Page, site: Site, records: Records
) -> None:
    run = await _with_results(records, "needle")
    await open_run(page, site.address, run.root)
    await search_field(page).fill("needle")
    await page.keyboard.press("Enter")
    await expect_query(page, q="needle")

    await page.keyboard.press("Escape")
    await expect(row(page, run.opening_calls[0])).to_be_focused()
    await expect(page.locator("mark")).to_have_count(0)
    await expect_query(page, q=None)


@pytest.mark.thorough
async def test_search_counts_records_whose_long_texts_are_searched_in_part(
    page: Page, site: Site, records: Records
) -> None:
    run = await _with_results(records, "x" * 5_000 + "needle", "needle")
    await open_run(page, site.address, run.root)
    await search_field(page).fill("needle")

    await expect(page.get_by_role("search")).to_contain_text("1 hit")
    await expect(page.get_by_role("search")).to_contain_text("1 record has long texts")


@pytest.mark.thorough
@pytest.mark.parametrize(("language", "none"), [("en-US", "no hits"), ("zh-CN", "无匹配")])
async def test_search_without_hits_says_so_in_english_and_chinese(
    browser: Browser, site: Site, records: Records, language: str, none: str
) -> None:
    run = await _with_results(records, "血压")
    context = await browser.new_context(locale=language)
    page = await context.new_page()
    await open_run(page, site.address, run.root)
    field = page.get_by_role("searchbox").first

    await field.fill("nowhere")
    await expect(page.get_by_role("search")).to_contain_text(none)
    await field.fill("血压")
    await expect(row(page, run.opening_calls[0]).locator("mark")).to_have_text("血压")
    await context.close()
