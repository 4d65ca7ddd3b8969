"""Everyday tasks in the viewer, by keyboard alone: from the list of runs to one record."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from playwright.async_api import Locator, Page, Route, expect

from tests.journeys.conftest import Records, Site
from tests.journeys.model_calls import expect_new_first
from tests.journeys.tree_page import details, expect_focus, expect_query, selected
from tests.sample_runs import sample_run
from tests.telling_runs import failing_run, long_conversation, week_run
from tracer.clock import utc_now
from tracer.records import new_id

FEW = 12
"""How often a reader presses the Tab key at most to reach the next thing."""


async def _press(page: Page, *keys: str) -> None:
    for key in keys:
        await page.keyboard.press(key)


async def _tab_to(page: Page, target: Locator, key: str = "Tab") -> None:
    """Press the Tab key until `target` has the keyboard, and expect that this is visible."""
    await expect(target).to_be_visible()
    for _ in range(FEW):
        await page.keyboard.press(key)
        if await target.evaluate("element => element.matches(':focus-visible')"):
            return
    raise AssertionError(f"{target} is more than {FEW} times {key} away")


async def _list(page: Page, site: Site) -> None:
    await page.goto(f"{site.address}/runs")
    await expect(page.get_by_role("table", name="Runs")).to_be_visible()


def _link(page: Page, root: object) -> Locator:
    return page.locator(f'a[href="/runs/{root}"]')


async def _search(page: Page, text: str, found: object) -> None:
    """Search the list and put the keyboard on a run, which must be the first one that is found."""
    await page.keyboard.press("/")
    await expect(page.get_by_role("searchbox", name="Search")).to_be_focused()
    await page.keyboard.type(text)
    await expect(page.get_by_role("table").get_by_role("link").first).to_have_attribute(
        "href", f"/runs/{found}"
    )
    await page.keyboard.press("ArrowDown")
    await expect(_link(page, found)).to_be_focused()


async def _open(page: Page, text: str, root: object) -> None:
    await _search(page, text, root)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("treeitem").first).to_be_visible()


async def _expect_selected(page: Page, key: object) -> None:
    await expect(selected(page)).to_have_attribute("data-key", str(key))


@pytest.mark.thorough
async def test_model_call_that_contains_an_answer_is_found(
    page: Page, site: Site, records: Records
) -> None:
    run = long_conversation(start=utc_now())
    await records.write(*run.events)
    await _list(page, site)

    await _open(page, "13.37 EUR", run.root)
    await page.keyboard.press("/")
    await page.keyboard.type("invoice | total")
    await expect(page.get_by_role("search").get_by_role("status")).to_contain_text("of 2")
    await page.keyboard.press("Enter")
    await expect_query(page, select=str(run.rounds[12]))
    await expect(details(page)).to_contain_text("INV-00001 | **13.37 EUR**")


async def test_question_and_answer_are_read_in_the_list(
    page: Page, site: Site, records: Records
) -> None:
    run = long_conversation(start=utc_now())
    await records.write(*run.events)
    await _list(page, site)

    await page.keyboard.press("/")
    await page.keyboard.press("ArrowDown")
    await expect(_link(page, run.root)).to_be_focused()
    listed = page.get_by_role("row").filter(has=_link(page, run.root))
    await expect(listed).to_contain_text("Summarise my open invoices as a table")
    await expect(listed).to_contain_text("INV-00001 · 13.37 EUR")


@pytest.mark.thorough
async def test_dearest_model_call_is_found(page: Page, site: Site, records: Records) -> None:
    run = long_conversation(start=utc_now())
    await records.write(*run.events)
    await _list(page, site)

    await _open(page, "Summarise", run.root)
    await page.keyboard.press("j")
    await expect(page.locator("[role=treeitem]:focus")).to_have_count(1)
    await page.keyboard.press("End")
    await _expect_selected(page, run.rounds[12])
    _, *costs = await page.get_by_role("treeitem").locator(".cost").all_inner_texts()
    assert max(costs) == costs[-1] == "$0.00102"
    await expect(details(page)).to_contain_text("$0.0010")


@pytest.mark.thorough
async def test_origin_of_a_failure_is_found(page: Page, site: Site, records: Records) -> None:
    run = failing_run(start=utc_now())
    await records.write(*run.events)
    await _list(page, site)

    await _open(page, "status:failed INV-00042", run.root)
    await page.keyboard.press("n")
    await _expect_selected(page, run.origin)
    await expect(details(page)).to_contain_text("bank.example did not answer within 30 s")


@pytest.mark.thorough
async def test_earlier_messages_of_a_model_call_are_read(
    page: Page, site: Site, records: Records
) -> None:
    run = long_conversation(start=utc_now())
    await records.write(*run.events)
    await _list(page, site)

    await _open(page, "Summarise", run.root)
    await page.keyboard.press("j")
    await expect_focus(page, run.rounds[0])
    await page.keyboard.type("LLM call 12")
    await expect_focus(page, run.rounds[11])
    chosen = await expect_new_first(page)
    earlier = details(page).get_by_text("22 earlier messages")
    await _tab_to(page, earlier)
    await page.keyboard.press("Enter")
    await expect(details(page).get_by_text("I read page 0.")).to_be_visible()
    await page.keyboard.press("Enter")
    await _tab_to(page, chosen)
    await page.keyboard.press("Enter")
    await _expect_selected(page, run.calls[11])


@pytest.mark.thorough
async def test_call_and_cost_of_a_sub_agent_are_found(
    page: Page, site: Site, records: Records
) -> None:
    run = failing_run(start=utc_now())
    await records.write(*run.events)
    await _list(page, site)

    await _open(page, "INV-00042", run.root)
    await _press(page, "n", "p", "p")
    await _expect_selected(page, run.ledger_call)
    await expect(selected(page).locator(".cost")).to_have_text("$0.000169")
    await expect(selected(page)).to_contain_text("in parallel with 1 other")
    agent = details(page).get_by_role("button", name="Sub-agent", exact=True)
    await _tab_to(page, agent)
    await page.keyboard.press("Enter")
    opener = details(page).get_by_role("heading", name="Triggered by tool: ask_ledger")
    await expect(opener).to_be_visible()


async def test_stuck_run_is_found_and_cancelled(page: Page, site: Site, records: Records) -> None:
    start = utc_now() - timedelta(minutes=10)
    run = await records.record(sample_run(title="Stuck by keys", finished=False, start=start))
    await _list(page, site)

    await _search(page, "status:running Stuck by keys", run.root)
    listed = page.get_by_role("row").filter(has=_link(page, run.root))
    await expect(listed).to_contain_text("Running check")
    await page.keyboard.press("Enter")
    await expect(selected(page)).to_be_visible()
    await page.keyboard.press("j")
    await expect(page.locator("[role=treeitem]:focus")).to_have_count(1)
    await page.keyboard.press("End")
    await _expect_selected(page, run.opening_calls[1])
    await expect(details(page)).to_contain_text("running")

    await _tab_to(page, page.get_by_role("button", name="More actions"), "Shift+Tab")
    await page.keyboard.press("Enter")
    await _tab_to(page, page.get_by_role("button", name="Cancel the run"))
    await page.keyboard.press("Enter")
    await expect(page.locator(".run-header")).to_contain_text("Cancellation was requested.")


@pytest.mark.thorough
async def test_difference_between_runs_is_found(page: Page, site: Site, records: Records) -> None:
    session = f"week-{new_id()}"
    before = week_run(session_id=session, start=utc_now() - timedelta(minutes=2))
    after = week_run(session_id=session, start=utc_now(), answer="Your week was stormy.")
    await records.write(*before.events, *after.events)
    await _list(page, site)

    await _search(page, f"session:{session} ", after.root)
    await expect(page.get_by_role("table").get_by_role("link")).to_have_count(2)
    await _press(page, "x", "j", "x")
    await expect(page.get_by_role("region", name="Picked runs")).to_contain_text("2 runs picked")
    await page.keyboard.press("c")
    answer = page.locator(f'[role="row"][data-key="{before.answer}"]')
    await expect(answer).to_be_visible()
    for _ in range(3):
        await page.keyboard.press("n")
        await expect(page.locator('[role="row"]:focus')).to_have_count(1)
        if await answer.evaluate("element => element === document.activeElement"):
            break
    output = details(page).get_by_role("region", name="Difference: output")
    await expect(output.get_by_role("insertion")).to_have_text("added: stormy")

    side = answer.get_by_role("link").last
    await _tab_to(page, side)
    await page.keyboard.press("Enter")
    await expect_query(page, select=str(after.answer))


@pytest.mark.thorough
async def test_slowest_call_of_a_slow_tool_is_found(
    page: Page, site: Site, records: Records
) -> None:
    run = week_run(start=utc_now() - timedelta(hours=1))
    await records.write(*run.events)
    await records.roll_up(run.root)
    await _list(page, site)

    await page.keyboard.press("Control+k")
    await page.keyboard.type("Go to the tools")
    await expect(page.get_by_role("option", name="Go to the tools")).to_be_visible()
    await page.keyboard.press("Enter")
    tool = page.get_by_role("link", name="ask_doctor", exact=True)
    await expect(tool).to_be_visible()
    await page.keyboard.press("j")
    await _tab_to(page, page.get_by_role("button", name="own p95"), "Shift+Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("columnheader", name="own p95")).to_have_attribute(
        "aria-sort", "descending"
    )
    for _ in range(FEW):
        await page.keyboard.press("j")
        if await tool.evaluate("element => element === document.activeElement"):
            break
    await page.keyboard.press("Enter")
    panel = page.get_by_role("complementary", name="ask_doctor")
    await expect(panel).to_be_focused()
    slowest = panel.get_by_role("region", name="Slowest calls").get_by_role("link").first
    await _tab_to(page, slowest)
    await page.keyboard.press("Enter")
    await expect_query(page, "select")
    await expect(details(page)).to_contain_text("ask_doctor")


@pytest.mark.thorough
async def test_tool_with_most_failures_since_monday_is_found(
    page: Page, site: Site, records: Records
) -> None:
    for _ in range(3):
        run = failing_run(start=utc_now())
        await records.write(*run.events)
        await records.roll_up(run.root)
    await page.goto(f"{site.address}/tools")
    worst = page.get_by_role("link", name="http_get", exact=True)
    await expect(worst).to_be_visible()

    await _tab_to(page, page.get_by_role("combobox", name="Time"))
    await page.keyboard.type("Since M")
    await expect_query(page, last="monday")
    await _tab_to(page, page.get_by_role("button", name="Failed here"))
    await page.keyboard.press("Enter")
    await _press(page, "j")
    await expect(worst).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("complementary", name="http_get")).to_contain_text("failed")


async def test_closed_tool_panel_returns_focus_to_its_tool(
    page: Page, site: Site, records: Records
) -> None:
    run = week_run(start=utc_now() - timedelta(hours=1))
    await records.write(*run.events)
    await records.roll_up(run.root)
    await page.goto(f"{site.address}/tools")
    tool = page.locator("tbody").get_by_role("link").first
    await expect(tool).to_be_visible()
    await _press(page, "j", "Enter")
    panel = page.get_by_role("complementary")
    await expect(panel).to_be_focused()

    await page.keyboard.press("Escape")
    await expect(panel).to_have_count(0)
    await expect(tool).to_be_focused()


@pytest.mark.thorough
async def test_link_to_one_record_is_copied(page: Page, site: Site, records: Records) -> None:
    run = failing_run(start=utc_now())
    await records.write(*run.events)
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await _list(page, site)

    await _open(page, "INV-00042", run.root)
    await _press(page, "n")
    await _expect_selected(page, run.origin)
    await page.keyboard.press("y")
    await expect(page.get_by_role("status").filter(has_text="Link copied")).to_have_count(1)
    link = str(await page.evaluate("navigator.clipboard.readText()"))
    assert link.endswith(f"select={run.origin}")


async def test_escape_before_the_palette_has_loaded_closes_it(page: Page, site: Site) -> None:
    released, palette = await _hold_palette(page)
    await _list(page, site)
    async with page.expect_request("**/command-palette-*.js") as requested:
        await page.keyboard.press("Control+k")
    await page.keyboard.press("Escape")
    released.set()
    await page.evaluate("url => import(url)", (await requested.value).url)

    await expect(palette).to_have_count(0)
    await page.keyboard.press("Control+k")
    await expect(palette.get_by_role("combobox")).to_be_focused()


async def test_text_typed_before_the_palette_has_loaded_is_searched(page: Page, site: Site) -> None:
    released, palette = await _hold_palette(page)
    await _list(page, site)
    async with page.expect_request("**/command-palette-*.js"):
        await page.keyboard.press("Control+k")
    await page.keyboard.type("xy?/")
    released.set()

    await expect(palette.get_by_role("combobox")).to_have_value("xy?/")
    await expect(page.get_by_role("dialog")).to_have_count(1)


async def _hold_palette(page: Page) -> tuple[asyncio.Event, Locator]:
    """Hold the palette's code back until the event is set."""
    released = asyncio.Event()

    async def hold(route: Route) -> None:
        await released.wait()
        await route.continue_()

    await page.route("**/command-palette-*.js", hold)
    return released, page.get_by_role("dialog", name="Search and commands")
