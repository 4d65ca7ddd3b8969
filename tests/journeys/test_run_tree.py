"""The tree of records on the viewer's run page."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.journeys.conftest import Records, Site
from tests.journeys.live_recording import live_recording
from tests.journeys.tree_page import (
    ROW_HEIGHT,
    expect_focus,
    expect_query,
    focused_key,
    open_run,
    row,
    rows,
    selected,
    settled_box,
)
from tests.sample_runs import SampleRun, sample_run


async def _recorded(records: Records, sub_plans: int = 2) -> SampleRun:
    return await records.record(sample_run(sub_plans=sub_plans))


async def test_tree_nests_records_from_plan_to_sub_plan(
    page: Page, site: Site, records: Records
) -> None:
    run = await _recorded(records)
    await open_run(page, site.address, run.root)
    shown = await rows(page)

    assert [(each.key, each.level, each.expanded) for each in shown] == [
        (str(run.root), 1, True),
        (str(run.step), 2, True),
        (str(run.think_act), 3, True),
        (str(run.failed_call), 4, None),
        (str(run.opening_calls[0]), 4, True),
        (str(run.sub_plans[0]), 5, None),
        (str(run.opening_calls[1]), 4, True),
        (str(run.sub_plans[1]), 5, None),
    ]
    assert ["failed" in each.text for each in shown].count(True) == 1


@pytest.mark.thorough
async def test_demonstration_run_is_expanded_as_far_as_it_fits_the_screen(
    page: Page, site: Site, demo_run: str
) -> None:
    await open_run(page, site.address, demo_run)
    height = await page.get_by_role("tree").evaluate("tree => tree.clientHeight")

    shown = await rows(page)
    assert {each.level for each in shown} >= {1, 2, 3, 4}
    assert len(shown) <= height / ROW_HEIGHT


@pytest.mark.thorough
async def test_each_row_has_its_position_among_its_siblings_for_screen_readers(
    page: Page, site: Site, records: Records
) -> None:
    run = await _recorded(records)
    await open_run(page, site.address, run.root)
    call = row(page, run.opening_calls[1])

    await expect(call).to_have_attribute("aria-setsize", "3")
    await expect(call).to_have_attribute("aria-posinset", "3")


async def test_every_row_of_the_tree_is_reached_by_keyboard(
    page: Page, site: Site, records: Records
) -> None:
    run = await _recorded(records)
    await open_run(page, site.address, run.root)
    await page.get_by_role("tree").focus()
    await expect_focus(page, run.root)
    first_call, second_call = run.opening_calls

    for key, where in [
        ("ArrowDown", run.step),
        ("ArrowRight", run.think_act),
        ("ArrowRight", run.failed_call),
        ("ArrowRight", run.failed_call),
        ("ArrowDown", first_call),
        ("ArrowRight", run.sub_plans[0]),
        ("ArrowLeft", first_call),
        ("End", run.sub_plans[1]),
        ("ArrowUp", second_call),
        ("Home", run.root),
        ("ArrowUp", run.root),
        ("m", run.failed_call),
        ("ArrowLeft", run.think_act),
    ]:
        await page.keyboard.press(key)
        await expect_focus(page, where)


@pytest.mark.thorough
async def test_left_arrow_collapses_and_right_arrow_expands_a_row(
    page: Page, site: Site, records: Records
) -> None:
    run = await _recorded(records)
    await open_run(page, site.address, run.root, select=run.think_act)
    await row(page, run.think_act).focus()

    await page.keyboard.press("ArrowLeft")
    await expect(row(page, run.think_act)).to_have_attribute("aria-expanded", "false")
    await expect(row(page, run.failed_call)).to_have_count(0)
    assert await focused_key(page) == str(run.think_act)
    await page.keyboard.press("ArrowRight")
    await expect(row(page, run.failed_call)).to_be_visible()


@pytest.mark.thorough
async def test_click_on_the_arrow_expands_a_row_and_other_clicks_select_it(
    page: Page, site: Site, records: Records
) -> None:
    run = await _recorded(records)
    await open_run(page, site.address, run.root)

    await row(page, run.step).locator("[data-arrow]").click()
    await expect(row(page, run.think_act)).to_have_count(0)
    await expect(selected(page)).to_have_attribute("data-key", str(run.root))
    await row(page, run.step).click()
    await expect(row(page, run.think_act)).to_have_count(0)
    await expect(selected(page)).to_have_attribute("data-key", str(run.step))
    await expect_query(page, select=str(run.step))


@pytest.mark.thorough
async def test_large_run_renders_only_visible_rows(
    page: Page, site: Site, records: Records
) -> None:
    run = await _recorded(records, sub_plans=500)
    await open_run(page, site.address, run.root, select=run.sub_plans[-1])

    await expect(row(page, run.sub_plans[-1])).to_be_in_viewport()
    assert await page.locator("*").count() < 3_000
    await row(page, run.sub_plans[-1]).focus()
    await page.keyboard.press("Home")
    await expect_focus(page, run.root)


async def test_title_of_a_cut_text_is_that_of_the_row_after_scrolling(
    page: Page, site: Site
) -> None:
    async with live_recording(site.database_url) as recording:
        await recording.begin(calls=300)
    await open_run(page, site.address, recording.root)
    tree = page.get_by_role("tree")
    await tree.evaluate("tree => { tree.scrollTop = 0 }")  # a live run shows its newest row
    await page.evaluate(
        """() => {
            const narrow = new CSSStyleSheet()
            narrow.replaceSync('.excerpt { max-width: 20px }')
            document.adoptedStyleSheets.push(narrow)
        }"""
    )
    box = await settled_box(row(page, recording.calls[0]).locator(".excerpt"))
    x, y = box["x"] + 5, box["y"] + box["height"] / 2

    for top in range(0, 7_000, 1_400):
        await tree.evaluate("(tree, top) => { tree.scrollTop = top }", top)
        # Before the tree has new rows, and then with the same element of another row.
        for moved in (0, 1):
            await page.mouse.move(x + moved, y)
            text, title = await page.evaluate(
                """async at => {
                    await new Promise(requestAnimationFrame)
                    const excerpt = document.elementFromPoint(...at).closest('.excerpt')
                    return [excerpt.textContent.trim(), excerpt.title]
                }""",
                [x, y],
            )
            assert title in ("", text)
        assert title == text
