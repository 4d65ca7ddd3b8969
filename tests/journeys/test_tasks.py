"""Everyday tasks in the viewer: from the list of runs to the answer in at most two actions."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from playwright.async_api import Page, expect

from tests.journeys.conftest import Records, Site
from tests.journeys.model_calls import expect_new_first
from tests.journeys.tree_page import details, expect_query, open_run, query_of, row, rows, selected
from tests.sample_runs import SampleRun, sample_run
from tests.telling_runs import (
    FailingRun,
    LongConversation,
    deep_run,
    failing_run,
    long_conversation,
)
from tracer.clock import utc_now
from tracer.records import new_id

STATUSES = ("succeeded", "failed", "running", "Failed below")


def _ten_minutes_ago() -> datetime:
    return utc_now() - timedelta(minutes=10)


async def _failed(records: Records) -> FailingRun:
    run = failing_run(start=utc_now())
    await records.write(*run.events)
    return run


async def _conversation(records: Records) -> LongConversation:
    run = long_conversation(start=utc_now())
    await records.write(*run.events)
    return run


async def _list(page: Page, site: Site, query: str = "") -> None:
    await page.goto(f"{site.address}/runs{query}")
    await expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()


async def test_run_is_found_by_words_of_its_answer(
    page: Page, site: Site, records: Records
) -> None:
    run = await _conversation(records)
    await _list(page, site)

    await page.get_by_role("searchbox", name="Search").fill("13.37 EUR")
    found = page.get_by_role("row").filter(has=page.locator(f'a[href="/runs/{run.root}"]'))
    await expect(found).to_contain_text("Summarise my open invoices as a table")
    await expect(found).to_contain_text("INV-00001")


async def test_failed_run_leads_to_the_origin_of_its_failure_in_one_action(
    page: Page, site: Site, records: Records
) -> None:
    run = await _failed(records)
    await _list(page, site, "?status=failed")
    listed = page.get_by_role("row").filter(has=page.locator(f'a[href="/runs/{run.root}"]'))
    await expect(listed).to_contain_text("http_get: TimeoutError: bank.example did not answer")
    await expect(listed).to_contain_text("2 levels deep")

    await listed.get_by_role("link").first.click()
    banner = page.get_by_role("region", name="Failures")
    await expect(banner).to_contain_text(
        "Began in http_get, in a sub-agent 2 levels deep: TimeoutError"
    )
    await banner.get_by_role("button", name="Go to it").click()
    await expect(selected(page)).to_have_attribute("data-key", str(run.origin))
    await expect(details(page)).to_contain_text("bank.example did not answer within 30 s")


async def test_nested_failure_has_one_red_row_and_counts_once(
    page: Page, site: Site, records: Records
) -> None:
    run = await _failed(records)
    await open_run(page, site.address, run.root, all_records=False)

    await expect(row(page, run.origin)).to_be_visible()
    assert len(await rows(page)) == 9
    red = page.get_by_role("treeitem").locator(".name.failed")
    await expect(red).to_have_text(["http_get"])
    await expect(page.locator(".run-header")).to_contain_text("Failures 1")
    ledger = row(page, run.ledger_call)
    await expect(ledger).to_contain_text("Failed below")
    await expect(ledger.locator(".agent")).to_contain_text("ledger")


async def test_details_of_a_model_call_begin_with_its_input(
    page: Page, site: Site, records: Records
) -> None:
    run = await _conversation(records)
    await _list(page, site, "?q=Summarise")
    await page.locator(f'a[href="/runs/{run.root}"]').click()
    await row(page, run.rounds[11]).click()

    chosen = await expect_new_first(page)
    await chosen.click()
    await expect(selected(page)).to_have_attribute("data-key", str(run.calls[11]))


async def test_an_answer_in_markdown_is_rendered(page: Page, site: Site, records: Records) -> None:
    run = await _conversation(records)
    await open_run(page, site.address, run.root, select=run.rounds[12])

    shown = details(page)
    await expect(shown.get_by_role("cell", name="13.37 EUR")).to_be_visible()
    link = shown.get_by_role("link", name="the ledger")
    await expect(link).to_have_attribute("rel", "noopener noreferrer nofollow")


async def test_sub_agent_row_shows_its_call_and_cost(
    page: Page, site: Site, records: Records
) -> None:
    run = await _failed(records)
    await _list(page, site, "?q=INV-00042")
    await page.locator(f'a[href="/runs/{run.root}"]').click()

    ledger = row(page, run.ledger_call)
    await expect(ledger).to_contain_text("ask_ledger")
    await expect(ledger.locator(".cost")).to_have_text("$0.000169")
    await ledger.click()
    await (
        details(page)
        .get_by_role("group", name="Records of this row")
        .get_by_role("button", name="Sub-agent")
        .click()
    )
    heading = details(page).get_by_role("heading", name="Triggered by tool: ask_ledger")
    await expect(heading).to_be_visible()


async def test_running_run_shows_its_open_call_and_last_heartbeat(
    page: Page, site: Site, records: Records
) -> None:
    run: SampleRun = await records.record(
        sample_run(title="Stuck", finished=False, start=_ten_minutes_ago(), recorder=new_id())
    )
    await _list(page, site, "?q=Stuck")

    await page.get_by_role("combobox", name="Status").select_option("running")
    listed = page.get_by_role("row").filter(has=page.locator(f'a[href="/runs/{run.root}"]'))
    await expect(listed).to_contain_text("Running check")
    await expect(listed).to_contain_text("heartbeat")


async def test_a_link_to_one_record_is_copied_with_a_key(
    page: Page, site: Site, records: Records
) -> None:
    run = await _failed(records)
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await _list(page, site, "?q=INV-00042")
    await page.locator(f'a[href="/runs/{run.root}"]').click()
    await page.get_by_role("button", name="Go to it").click()
    await expect_query(page, select=str(run.origin))

    await page.keyboard.press("y")
    await expect(page.get_by_role("status").filter(has_text="Link copied")).to_have_count(1)
    link = str(await page.evaluate("navigator.clipboard.readText()"))
    await page.goto(link)
    await expect(selected(page)).to_have_attribute("data-key", str(run.origin))
    assert query_of(page)["select"] == str(run.origin)


async def test_origin_of_a_failure_is_reached_by_keyboard(
    page: Page, site: Site, records: Records
) -> None:
    run = await _failed(records)
    await _list(page, site, "?q=INV-00042")
    await page.locator(f'a[href="/runs/{run.root}"]').focus()
    await page.keyboard.press("Enter")
    await page.get_by_role("button", name="Go to it").focus()
    await page.keyboard.press("Enter")
    await expect(selected(page)).to_have_attribute("data-key", str(run.origin))

    await page.get_by_role("button", name="More actions").focus()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("link", name="Export as JSON lines")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("link", name="Export as JSON lines")).to_have_count(0)


async def test_the_accessibility_tree_names_level_and_status_of_each_row(
    page: Page, site: Site, records: Records
) -> None:
    run = await _failed(records)
    await open_run(page, site.address, run.root, all_records=False)
    session = await page.context.new_cdp_session(page)
    nodes = (await session.send("Accessibility.getFullAXTree"))["nodes"]
    items = [each for each in nodes if each.get("role", {}).get("value") == "treeitem"]

    assert len(items) == 9
    for item in items:
        names = {each["name"] for each in item["properties"]}
        assert "level" in names, item
        assert any(status in item["name"]["value"] for status in STATUSES), item["name"]


async def test_run_without_heartbeats_is_not_shown_as_live(
    page: Page, site: Site, records: Records
) -> None:
    await page.clock.install()
    run = await records.record(
        sample_run(title="Silent", finished=False, start=_ten_minutes_ago(), recorder=new_id())
    )
    await open_run(page, site.address, run.root)
    await expect(page.locator(".run-header")).to_contain_text("running")
    await expect(page.locator(".run-header .live")).to_be_visible()

    await page.clock.fast_forward("05:00")
    await expect(page.locator(".run-header")).to_contain_text("no heartbeat for")
    await expect(page.locator(".run-header .live")).to_have_count(0)


@pytest.mark.thorough
async def test_run_is_deleted_after_a_confirmation(
    page: Page, site: Site, records: Records
) -> None:
    run = await _failed(records)
    await open_run(page, site.address, run.root)
    await page.get_by_role("button", name="More actions").click()
    await page.get_by_role("button", name="Delete the run").click()
    dialog = page.get_by_role("dialog", name="Delete the run")
    await dialog.get_by_role("button", name="Delete the run").click()

    await expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    await page.goto(f"{site.address}/runs/{run.root}")
    await expect(page.get_by_role("heading", name="Not found")).to_be_visible()


@pytest.mark.thorough
async def test_deep_row_becomes_the_root_and_a_button_leads_back(
    page: Page, site: Site, records: Records
) -> None:
    events = deep_run(15, start=utc_now())
    await records.write(*events)
    await page.goto(f"{site.address}/runs/{events[0].root_plan_id}?level=all")
    items = page.get_by_role("treeitem")
    await expect(items).to_have_count(12)
    levels = [each.level for each in await rows(page)]
    assert levels == list(range(1, 13))

    await items.nth(11).locator("[data-arrow]").click()
    await expect(items.first).to_have_attribute("aria-level", "1")
    await page.get_by_role("button", name="Whole run").click()
    await expect(items).to_have_count(12)


@pytest.mark.thorough
async def test_typed_filter_becomes_a_chip_and_is_saved_in_a_view(
    page: Page, site: Site, records: Records
) -> None:
    await _failed(records)
    await _list(page, site)
    await page.get_by_role("searchbox", name="Search").press_sequentially("agent:billing ")
    chips = page.get_by_role("list", name="Filters")
    await expect(chips).to_contain_text("Agent: billing")
    await expect_query(page, agent="billing", q=None)

    await page.get_by_role("button", name="Saved views").click()
    await page.get_by_label("Name of this view").fill("Billing")
    await page.get_by_role("button", name="Save", exact=True).click()
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Remove the filter Agent: billing").click()
    await expect_query(page, agent=None)
    await page.get_by_role("button", name="Saved views").click()
    await page.get_by_role("link", name="Billing", exact=True).click()
    await expect_query(page, agent="billing")


@pytest.mark.thorough
async def test_chosen_columns_and_sorting_are_in_the_link(
    page: Page, site: Site, records: Records
) -> None:
    cheap, dear = await _failed(records), await _conversation(records)
    await _list(page, site, "?agent=billing&last=1h")
    await page.get_by_role("button", name="Cost").click()
    await expect_query(page, sort="-cost")
    links = page.get_by_role("table").get_by_role("link")
    await expect(links.first).to_have_attribute("href", f"/runs/{dear.root}")
    await page.get_by_role("button", name="Cost").click()
    await expect(page.locator(f'a[href="/runs/{cheap.root}"]')).to_be_visible()
    await expect(page.get_by_role("columnheader", name="Cost")).to_have_attribute(
        "aria-sort", "ascending"
    )

    await page.get_by_role("button", name="Columns").click()
    await page.get_by_role("checkbox", name="Session").check()
    await expect(page.get_by_role("columnheader", name="Session")).to_be_visible()
    await expect_query(page, columns="agent.when.duration.tokens.cost.session")
