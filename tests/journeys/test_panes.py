"""The dividers between the panes of the viewer's run page."""

from __future__ import annotations

import pytest
from playwright.async_api import Locator, Page, expect

from tests.journeys.axe import violations
from tests.journeys.conftest import Records, Site
from tests.journeys.tree_page import details, expect_focus, open_run, row, settled_box
from tests.sample_runs import sample_run

NAMES = "Room for the names and for the waterfall"
TREE = "Room for the tree and for the details"

pytestmark = pytest.mark.thorough


def _divider(page: Page, name: str) -> Locator:
    return page.get_by_role("separator", name=name)


async def _start(locator: Locator) -> float:
    return (await settled_box(locator))["x"]


async def _drag(page: Page, divider: Locator, distance: float) -> None:
    box = await settled_box(divider)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    await page.mouse.move(x, y)
    await page.mouse.down()
    await page.mouse.move(x + distance, y, steps=3)
    await page.mouse.up()


async def test_dragged_divider_keeps_its_position_until_a_double_click(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root)
    for name, moved in [(NAMES, row(page, run.root).locator(".lane")), (TREE, details(page))]:
        divider = _divider(page, name)
        before = await _start(moved)

        await _drag(page, divider, -120)
        assert await _start(moved) == pytest.approx(before - 120, abs=3)
        await page.reload()
        await expect(row(page, run.root)).to_be_visible()
        assert await _start(moved) == pytest.approx(before - 120, abs=3)
        await divider.dblclick()
        assert await _start(moved) == pytest.approx(before, abs=1)
    assert await violations(page) == []


async def test_divider_moves_by_keys_and_hides_neither_pane(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root)
    divider = _divider(page, NAMES)
    lane = row(page, run.root).locator(".lane")
    await divider.focus()

    for key, share in [
        ("ArrowRight", "77"),
        ("ArrowLeft", "75"),
        ("Home", "15"),
        ("ArrowLeft", "15"),
        ("End", "85"),
        ("Enter", "75"),
    ]:
        await page.keyboard.press(key)
        await expect(divider).to_have_attribute("aria-valuenow", share)
    before = await _start(lane)
    await page.keyboard.press("ArrowLeft")
    assert await _start(lane) < before


async def test_tab_order_is_tools_tree_dividers_details(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root)
    await page.get_by_role("button", name="Zoom in").focus()

    await page.keyboard.press("Tab")
    await expect(page.get_by_role("button", name="critical path")).to_be_focused()
    await page.keyboard.press("Tab")
    await expect(page.get_by_role("button", name="Legend")).to_be_focused()
    await page.keyboard.press("Tab")
    await expect_focus(page, run.root)
    await page.keyboard.press("Tab")
    await expect(_divider(page, NAMES)).to_be_focused()
    await page.keyboard.press("Tab")
    await expect(_divider(page, TREE)).to_be_focused()
    await page.keyboard.press("Tab")
    await expect(details(page)).to_be_focused()


async def test_small_screen_has_no_dividers_between_panes(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await page.set_viewport_size({"width": 360, "height": 700})
    await open_run(page, site.address, run.root)

    await expect(page.get_by_role("separator")).to_have_count(0)
    await page.get_by_role("button", name="Waterfall").click()
    await expect(_divider(page, NAMES)).to_be_visible()
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360
