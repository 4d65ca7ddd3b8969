"""The viewer in two languages, on small screens, and with assistive technology."""

from __future__ import annotations

import pytest
from playwright.async_api import Browser, Page, expect

from tests.journeys.axe import violations
from tests.journeys.conftest import Records, Site
from tests.journeys.tree_page import open_run
from tests.sample_runs import sample_run


@pytest.mark.thorough
async def test_browser_that_prefers_chinese_gets_chinese(
    browser: Browser, site: Site, records: Records
) -> None:
    await records.record(sample_run())
    context = await browser.new_context(locale="zh-CN")
    page = await context.new_page()
    await page.goto(f"{site.address}/runs")

    await expect(page.get_by_role("columnheader", name="智能体")).to_be_visible()
    assert await page.locator("html").get_attribute("lang") == "zh-CN"
    await context.close()


async def test_a_chosen_language_is_kept(page: Page, site: Site, records: Records) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root, select=run.sub_plans[0])
    await page.get_by_role("button", name="Appearance").click()
    await page.get_by_label("Language").select_option("zh-CN")

    await expect(page.get_by_role("heading", name="由工具触发：check")).to_be_visible()
    await page.reload()
    await expect(page.get_by_role("heading", name="由工具触发：check")).to_be_visible()


@pytest.mark.thorough
@pytest.mark.parametrize("width", [1440, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_violation_on_list_and_run(
    browser: Browser, site: Site, records: Records, scheme: str, width: int
) -> None:
    run = await records.record(sample_run(finished=False))
    context = await browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 900},
    )
    page = await context.new_page()
    paths = [
        "/",
        *(
            f"/runs/{run.root}?select={record}"
            for record in (run.sub_plans[0], run.failed_call, run.think_act, run.step)
        ),
        "/runs/nonsense",
    ]

    for path in paths:
        await page.goto(site.address + path)
        await expect(page.get_by_role("heading").first).to_be_visible()
        assert await violations(page) == [], path
    await context.close()


@pytest.mark.thorough
@pytest.mark.parametrize("width", [1440, 360])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_passes_during_and_after_an_outage(
    browser: Browser, site: Site, records: Records, scheme: str, width: int
) -> None:
    run = await records.record(sample_run(finished=False))
    context = await browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 900},
        locale="en-US",
    )
    page = await context.new_page()
    await open_run(page, site.address, run.root)
    await context.set_offline(True)
    await expect(page.get_by_role("alert")).to_contain_text("This page shows the state of")
    assert await violations(page) == []

    await context.set_offline(False)
    await expect(page.get_by_text("The server answers again.")).to_be_visible()
    assert await violations(page) == []
    await context.close()


@pytest.mark.parametrize("width", [1440, pytest.param(360, marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    ("scheme", "language"),
    [pytest.param("light", "en-US", marks=pytest.mark.thorough), ("dark", "zh-CN")],
)
async def test_axe_finds_no_violation_in_search_waterfall_menu_and_shortcuts(
    browser: Browser, site: Site, records: Records, scheme: str, language: str, width: int
) -> None:
    run = await records.record(sample_run())
    context = await browser.new_context(
        color_scheme="dark" if scheme == "dark" else "light",
        viewport={"width": width, "height": 900},
        locale=language,
    )
    page = await context.new_page()
    query = f"select={run.failed_call}&q=check&waterfall=on&time=10-50&level=calls"
    await page.goto(f"{site.address}/runs/{run.root}?{query}")
    await expect(page.locator("mark").first).to_be_attached()
    await page.locator("summary").last.click()
    if width == 360:  # one pane at a time
        assert await violations(page) == [], "details"
        await page.locator(".details-pane .back").click()
    await expect(page.locator("mark").first).to_be_visible()
    await expect(page.locator(".bar").first).to_be_visible()
    assert await violations(page) == [], "search and waterfall"

    await page.keyboard.press("c")
    levels = page.locator("select.levels")
    await expect(levels).to_be_focused()
    assert await violations(page) == [], "menu"
    await page.keyboard.press("Escape")
    await levels.blur()  # a letter there chooses a level
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_be_visible()
    assert await violations(page) == [], "keys"
    await context.close()


@pytest.mark.thorough
async def test_small_screen_scrolls_only_scrollable_panes(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await page.set_viewport_size({"width": 360, "height": 700})
    for path in ("/", f"/runs/{run.root}"):
        await page.goto(site.address + path)
        await expect(page.get_by_role("heading").first).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth") <= 360
