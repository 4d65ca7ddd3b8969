"""Keyboard shortcuts of the viewer's run page."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

from tests.journeys.conftest import Records, Site
from tests.journeys.tree_page import bar, expect_focus, open_run, row, search_field, selected
from tests.sample_runs import SampleRun, sample_run
from tracer.records import Status
from tracer.records.events import ToolCallFinished


async def _with_two_failures(records: Records) -> SampleRun:
    run = await records.record(sample_run(sub_plans=3, finished=False))
    failed = ToolCallFinished(
        at=run.events[-1].at,
        root_plan_id=run.root,
        plan_id=run.root,
        step_id=run.step,
        tool_call_id=run.opening_calls[2],
        status=Status.FAILED,
    )
    await records.write(failed)
    return run


async def _expect_selected(page: Page, key: object) -> None:
    await expect(selected(page)).to_have_attribute("data-key", str(key))


async def test_key_n_moves_focus_between_failures(page: Page, site: Site, records: Records) -> None:
    run = await _with_two_failures(records)
    await open_run(page, site.address, run.root)
    await page.get_by_role("tree").focus()
    await expect_focus(page, run.root)

    for key, where in [
        ("n", run.failed_call),
        ("n", run.opening_calls[2]),
        ("n", run.failed_call),
        ("Shift+N", run.opening_calls[2]),
        ("Shift+N", run.failed_call),
    ]:
        await page.keyboard.press(key)
        await expect_focus(page, where)
        await _expect_selected(page, where)


@pytest.mark.thorough
async def test_key_n_opens_the_collapsed_rows_above_a_failure(
    page: Page, site: Site, records: Records
) -> None:
    run = await _with_two_failures(records)
    await open_run(page, site.address, run.root)
    await row(page, run.step).locator("[data-arrow]").click()
    await expect(row(page, run.failed_call)).to_have_count(0)

    await page.keyboard.press("n")
    await _expect_selected(page, run.failed_call)
    await expect(row(page, run.failed_call)).to_be_in_viewport()


@pytest.mark.thorough
async def test_key_p_selects_the_tool_call_that_opened_a_sub_plan(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root, select=run.sub_plans[1])
    await expect(row(page, run.sub_plans[1])).to_be_visible()

    await page.keyboard.press("p")
    await _expect_selected(page, run.opening_calls[1])
    await page.keyboard.press("p")
    await _expect_selected(page, run.opening_calls[1])


@pytest.mark.thorough
async def test_asterisk_key_expands_the_siblings_of_the_selected_row(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root, select=run.opening_calls[0])
    for call in run.opening_calls:
        await row(page, call).locator("[data-arrow]").click()
    for plan in run.sub_plans:
        await expect(row(page, plan)).to_have_count(0)

    await page.keyboard.press("*")
    for plan in run.sub_plans:
        await expect(row(page, plan)).to_be_visible()


@pytest.mark.thorough
async def test_menu_that_expands_tree_levels_works_by_keyboard(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root)
    menu = page.get_by_role("combobox", name="Levels")

    await page.keyboard.press("c")
    await expect(menu).to_be_focused()
    await expect(menu).to_have_value("fit")
    assert await menu.get_by_role("option").all_inner_texts() == [
        "As many as fit",
        "Down to steps",
        "Down to LLM calls",
        "Down to tools",
        "Down to sub-agents",
        "The main agent",
        "Everything",
    ]
    for _ in range(2):
        await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(menu).to_have_value("rounds")
    await expect(row(page, run.think_act)).to_have_attribute("aria-expanded", "false")

    await menu.select_option("Down to tools")
    await expect(row(page, run.failed_call)).to_be_visible()
    await expect(row(page, run.sub_plans[0])).to_have_count(0)


@pytest.mark.thorough
async def test_shortcut_list_opens_by_keyboard_and_disables_shortcuts(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root)
    await page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keyboard shortcuts")
    await expect(dialog).to_contain_text("Next failure")
    await page.keyboard.press("n")
    await _expect_selected(page, run.root)

    await dialog.get_by_role("checkbox").uncheck()
    await page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await page.keyboard.press("w")
    await page.reload()
    await expect(bar(page, run.root)).to_be_visible()
    await page.keyboard.press("?")
    await page.keyboard.press("n")
    await expect(dialog).to_have_count(0)
    await _expect_selected(page, run.root)


async def test_shortcuts_do_nothing_while_text_is_typed(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root)
    await page.keyboard.press("/")
    await expect(search_field(page)).to_be_focused()

    await page.keyboard.type("jkpcwz?*/-+0")
    await expect(search_field(page)).to_have_value("jkpcwz?*/-+0")
    await _expect_selected(page, run.root)
    await expect(bar(page, run.root)).to_be_visible()


@pytest.mark.thorough
async def test_typing_a_row_name_with_shortcut_letters_selects_the_row(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run(title="Weekly"))
    await open_run(page, site.address, run.root, select=run.step)
    await row(page, run.step).focus()

    # Its c alone would open a menu.
    await page.keyboard.type("llm c")
    await expect_focus(page, run.think_act)
    await page.keyboard.press("w")
    await expect(bar(page, run.root)).to_be_visible()


@pytest.mark.thorough
async def test_shift_and_a_shortcut_letter_select_a_row_by_name(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root)
    await row(page, run.root).focus()

    await page.keyboard.press("Shift+C")
    await expect_focus(page, run.opening_calls[0])
    await expect(bar(page, run.root)).to_be_visible()
    await page.keyboard.press("?")
    help_ = page.get_by_role("dialog", name="Keyboard shortcuts")
    await expect(help_).to_contain_text("Shift A … Z")
