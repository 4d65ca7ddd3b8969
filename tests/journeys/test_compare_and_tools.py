"""The viewer's comparison and tools pages answer common questions in at most three actions."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, ViewportSize, expect

from tests.journeys.axe import violations
from tests.journeys.conftest import Records, Site
from tests.profiles import quick_among
from tests.telling_runs import WeekRun, week_run
from tracer.clock import utc_now
from tracer.records import new_id

LOOKS = [(language, theme) for language in ("en-US", "zh-CN") for theme in ("light", "dark")]


async def _record(records: Records, run: WeekRun) -> WeekRun:
    await records.write(*run.events)
    await records.roll_up(run.root)
    return run


async def _pair(
    records: Records, question: str = "How was my week?", **other: Any
) -> tuple[WeekRun, WeekRun]:
    """Record two runs of one session; the later one differs in `other`."""
    session, now = f"week-{new_id()}", utc_now()
    left = week_run(question=question, session_id=session, start=now - timedelta(minutes=2))
    right = week_run(
        question=question, session_id=session, start=now - timedelta(minutes=1), **other
    )
    return await _record(records, left), await _record(records, right)


def _row(page: Page, key: object) -> Locator:
    return page.locator(f'[role="row"][data-key="{key}"]')


async def test_change_since_the_previous_run_is_found_in_three_actions(
    page: Page, site: Site, records: Records
) -> None:
    left, right = await _pair(records, answer="Your week was stormy.", pulse=91)
    await page.goto(f"{site.address}/runs/{right.root}")

    await page.get_by_role("link", name="Compare", exact=True).click()
    await page.get_by_role("link", name="Compare with the previous run of this session").click()
    await page.wait_for_url(f"**/compare/{left.root}/{right.root}*")
    answer = _row(page, left.answer)
    await expect(answer.get_by_role("deletion")).to_have_text("removed: Your week was calm.")
    await expect(answer.get_by_role("insertion")).to_have_text("added: Your week was stormy.")
    await expect(answer).to_contain_text("messages")
    await answer.locator(".name").click()

    details = page.get_by_role("region", name="Details", exact=True)
    difference = details.get_by_role("region", name="Difference: new messages")
    await expect(difference.get_by_role("deletion")).to_have_text("removed: 78")
    await expect(difference.get_by_role("insertion")).to_have_text("added: 91")
    said = details.get_by_role("region", name="Difference: output")
    await expect(said.get_by_role("insertion")).to_have_text("added: stormy")


async def test_white_space_and_key_order_are_no_difference(
    page: Page, site: Site, records: Records
) -> None:
    left, right = await _pair(records, is_compact=True)
    await page.goto(f"{site.address}/compare/{left.root}/{right.root}")

    await expect(page.get_by_text("The runs do not differ.")).to_be_visible()
    await expect(page.get_by_role("list", name="Difference")).to_contain_text("0 changed")


@pytest.mark.thorough
async def test_picked_run_can_be_compared_with_the_previous_run_of_its_session(
    page: Page, site: Site, records: Records
) -> None:
    left, right = await _pair(records)
    await page.goto(f"{site.address}/runs?picked={right.root}")
    await page.get_by_role("link", name="Compare with the previous run").click()

    await page.wait_for_url(f"**/compare/{left.root}/{right.root}*")


@pytest.mark.thorough
async def test_first_run_of_a_session_offers_other_runs_to_compare(
    page: Page, site: Site, records: Records
) -> None:
    # Earlier tests record runs with the usual title. One of them would be the previous run.
    left, _ = await _pair(records, question=f"How was week {new_id()}?")
    await page.goto(f"{site.address}/compare/{left.root}?with=previous")

    await expect(page.get_by_role("heading", name="Same session")).to_be_visible()


@pytest.mark.parametrize("width", quick_among([1440, 1024, 390], [390]))
async def test_badges_of_a_comparison_are_not_truncated(
    page: Page, site: Site, records: Records, width: int
) -> None:
    left, right = await _pair(records, answer="Your week was stormy.", pulse=91)
    await page.set_viewport_size({"width": width, "height": 900})
    await page.goto(f"{site.address}/compare/{left.root}/{right.root}")
    await expect(_row(page, left.answer)).to_be_visible()

    cut = await page.locator('[role="row"] :is(.marks, .mark, .delta, .side)').evaluate_all(
        "all => all.filter(each => each.scrollWidth > each.clientWidth + 1"
        " && getComputedStyle(each).display !== 'inline').map(each => each.outerHTML)"
    )
    assert cut == []
    wide = await page.evaluate("document.documentElement.scrollWidth > innerWidth")
    assert not wide


async def test_difference_between_two_runs_is_found_by_keyboard(
    page: Page, site: Site, records: Records
) -> None:
    left, right = await _pair(records, answer="Your week was stormy.")
    await page.goto(f"{site.address}/compare/{right.root}")
    previous = page.get_by_role("link", name="Compare with the previous run of this session")
    await previous.focus()
    await page.keyboard.press("Enter")
    await expect(_row(page, left.root)).to_be_visible()
    await _row(page, left.root).focus()
    for _ in range(3):
        await page.keyboard.press("n")
        await expect(page.locator('[role="row"]:focus')).to_have_count(1)
        if await page.locator(f'[data-key="{left.answer}"]:focus').count():
            break

    await expect(_row(page, left.answer)).to_be_focused()


async def _themed(browser: Browser, language: str, theme: str) -> Page:
    context = await browser.new_context(
        viewport=ViewportSize(width=1440, height=900),
        locale=language,
        color_scheme="dark" if theme == "dark" else "light",
    )
    return await context.new_page()


@pytest.mark.thorough
@pytest.mark.parametrize(("language", "theme"), LOOKS)
async def test_axe_finds_no_violation_in_comparisons(
    browser: Browser, site: Site, records: Records, language: str, theme: str
) -> None:
    left, right = await _pair(records, answer="Your week was stormy.", pulse=91)
    page = await _themed(browser, language, theme)
    for path in (f"/compare/{right.root}", f"/compare/{left.root}/{right.root}"):
        await page.goto(f"{site.address}{path}?select={left.answer}")
        await expect(page.get_by_role("heading").first).to_be_visible()
        await page.wait_for_load_state("networkidle")
        assert await violations(page) == [], path
    await page.context.close()


async def _weeks(records: Records) -> list[WeekRun]:
    """Record runs of the last hours; each asks a sub-agent with the tool `ask_doctor`."""
    now = utc_now()
    return [
        await _record(records, week_run(start=now - timedelta(hours=hours, minutes=30)))
        for hours in (1, 2, 5)
    ]


def _tool(page: Page, name: str) -> Locator:
    return page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))


async def test_tool_with_long_own_time_is_found_in_three_actions(
    page: Page, site: Site, records: Records
) -> None:
    await _weeks(records)
    await page.goto(f"{site.address}/tools?last=24h")

    await page.get_by_role("columnheader", name="own p95").get_by_role("button").click()
    await expect(page.get_by_role("columnheader", name="own p95")).to_have_attribute(
        "aria-sort", "descending"
    )
    row = _tool(page, "ask_doctor")
    await row.get_by_role("link").click()
    panel = page.get_by_role("complementary", name="ask_doctor")
    await expect(panel).to_be_in_viewport()
    total, own = (panel.get_by_role("row", name=name) for name in ("Total time", "Own time"))
    await expect(total.get_by_role("cell").first).to_have_text(re.compile("^40[0-5]ms$"))
    await expect(own.get_by_role("cell").first).to_have_text(re.compile("^1(49|5[01])ms$"))
    slowest = panel.get_by_role("region", name="Slowest calls").get_by_role("listitem")
    await expect(slowest.first).to_contain_text("400ms")


async def test_chart_bar_shows_its_values_and_opens_its_runs(
    page: Page, site: Site, records: Records
) -> None:
    [run, *_] = await _weeks(records)
    start = run.events[0].at
    span = f"from={(start - timedelta(hours=20)):%Y-%m-%dT%H:%M:%SZ}"
    end = start.replace(minute=0, second=0) + timedelta(hours=1)
    await page.goto(f"{site.address}/tools?tool=ask_doctor&{span}&to={end:%Y-%m-%dT%H:%M:%SZ}")
    chart = page.get_by_role("img", name="Calls over time")
    plot = chart.locator(".u-over")
    await expect(plot).to_be_visible()
    box = await plot.bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + box["width"] - 6, box["y"] + box["height"] / 2)
    calls, durations = (page.locator(".u-legend").nth(index) for index in (0, 1))
    await expect(calls).to_contain_text(re.compile("Calls [1-9]"))
    await expect(calls).to_contain_text(re.compile("succeeded *[1-9]"))
    await expect(durations).to_contain_text(re.compile("own p95 *1(49|5[01])ms"))

    await page.mouse.down()
    await page.mouse.up()
    await page.wait_for_url(re.compile(r"/runs\?.*tool=ask_doctor"))
    await expect(page.locator(f'a[href="/runs/{run.root}"]')).to_be_visible()


async def test_tool_and_its_runs_are_opened_by_keyboard(
    page: Page, site: Site, records: Records
) -> None:
    await _weeks(records)
    await page.goto(f"{site.address}/tools?last=24h")
    link = _tool(page, "ask_doctor").get_by_role("link")
    await link.focus()
    await page.keyboard.press("Enter")
    panel = page.get_by_role("complementary", name="ask_doctor")
    await expect(panel.get_by_role("img", name="Calls over time")).to_be_visible()
    await panel.get_by_text("As a table").focus()
    await page.keyboard.press("Enter")
    interval = panel.get_by_role("region", name="As a table").get_by_role("link").last
    await expect(interval).to_be_visible()
    await panel.get_by_text("As a table").press("Escape")
    await expect(panel).to_have_count(0)
    await expect(link).to_be_visible()


@pytest.mark.thorough
@pytest.mark.parametrize("width", [1440, 1024, 390])
async def test_columns_of_the_tools_page_are_not_truncated(
    page: Page, site: Site, records: Records, width: int
) -> None:
    await _weeks(records)
    await page.set_viewport_size({"width": width, "height": 900})
    for path in ("/tools?last=24h", "/tools?last=24h&tool=ask_doctor"):
        await page.goto(f"{site.address}{path}")
        await expect(
            page.get_by_role("heading", name="Tools")
            .or_(page.get_by_role("heading", name="ask_doctor"))
            .first
        ).to_be_visible()
        await page.wait_for_load_state("networkidle")
        assert not await page.evaluate("document.documentElement.scrollWidth > innerWidth"), path


@pytest.mark.thorough
@pytest.mark.parametrize(("language", "theme"), LOOKS)
async def test_axe_finds_no_violation_on_the_tools_page(
    browser: Browser, site: Site, records: Records, language: str, theme: str
) -> None:
    await _weeks(records)
    page = await _themed(browser, language, theme)
    for path in ("/tools", "/tools?tool=ask_doctor", "/tools?tool=no-such-tool"):
        await page.goto(f"{site.address}{path}")
        await expect(page.get_by_role("heading").first).to_be_visible()
        await page.wait_for_load_state("networkidle")
        assert await violations(page) == [], path
    await page.context.close()
