"""The viewer's page that compares two runs."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.journeys.axe import violations
from tests.journeys.conftest import Records, Site
from tests.journeys.tree_page import expect_query, selected, settled_box
from tests.sample_runs import START, SampleRun, sample_run
from tracer.records import Status
from tracer.records.events import PlanFinished, StepFinished, ToolCallFinished


async def _pair(records: Records) -> tuple[SampleRun, SampleRun]:
    """Record two runs: in the right one a call failed, another took long, a third was added."""
    left = await records.record(sample_run(sub_plans=2, title="Compared"))
    later = START + timedelta(hours=1)
    right = sample_run(sub_plans=3, title="Compared", finished=False, start=later)
    root: dict[str, Any] = {"root_plan_id": right.root, "plan_id": right.root}
    ids = {**root, "step_id": right.step}
    well: Any = Status.SUCCEEDED
    ends = [(1, Status.FAILED), (90, well), (1, well)]
    endings = [
        ToolCallFinished(
            at=later + timedelta(seconds=seconds),
            **ids,
            tool_call_id=call,
            status=status,
            result="well",
        )
        for call, (seconds, status) in zip(right.opening_calls, ends, strict=True)
    ]
    over = later + timedelta(seconds=91)
    await records.write(
        *right.events,
        *endings,
        StepFinished(at=over, **ids, status=Status.SUCCEEDED, result="fine"),
        PlanFinished(at=over, **root, status=Status.SUCCEEDED),
    )
    return left, right


async def _open(page: Page, site: Site, left: SampleRun, right: SampleRun, query: str = "") -> None:
    await page.goto(f"{site.address}/compare/{left.root}/{right.root}{query}")
    await expect(page.get_by_role("treegrid")).to_be_visible()


def _row(page: Page, key: object) -> Locator:
    return page.locator(f'[role="row"][data-key="{key}"]')


async def test_comparison_aligns_two_runs_and_names_the_differences(
    page: Page, site: Site, records: Records
) -> None:
    left, right = await _pair(records)
    await _open(page, site, left, right)

    origin = page.get_by_role("button", name=re.compile("^The runs diverge at "))
    await expect(origin).to_contain_text("succeeded 40ms → failed 970ms")
    failed, slower = (_row(page, call) for call in left.opening_calls)
    await expect(failed).to_contain_text("outcome")
    await expect(failed.get_by_role("gridcell").nth(2)).to_contain_text("failed")
    await expect(slower.locator(".delta.duration")).to_contain_text("+1m")
    await expect(_row(page, right.opening_calls[2])).to_contain_text("added")
    await expect(page.get_by_role("list", name="Difference")).to_contain_text("2 added")


@pytest.mark.thorough
async def test_state_of_the_differences_only_switch_is_in_the_link(
    page: Page, site: Site, records: Records
) -> None:
    left, right = await _pair(records)
    await _open(page, site, left, right)
    await expect(_row(page, left.failed_call)).to_be_visible()
    await page.get_by_role("switch", name="Only differences").check()

    await expect(_row(page, left.failed_call)).to_have_count(0)
    await expect(_row(page, left.opening_calls[0])).to_be_visible()
    await expect_query(page, only="differences")
    await page.reload()
    await expect(_row(page, left.opening_calls[0])).to_be_visible()
    await expect(_row(page, left.failed_call)).to_have_count(0)


@pytest.mark.thorough
async def test_comparison_rows_are_reached_by_keyboard(
    page: Page, site: Site, records: Records
) -> None:
    left, right = await _pair(records)
    await _open(page, site, left, right)
    await _row(page, left.root).focus()
    press = page.keyboard.press

    await press("ArrowDown")
    await expect(_row(page, left.think_act)).to_be_focused()
    await press("ArrowLeft")
    await expect(_row(page, left.think_act)).to_have_attribute("aria-expanded", "false")
    await press("ArrowLeft")
    await expect(_row(page, left.root)).to_be_focused()
    await press("j")
    await press("j")
    await expect(page.locator('[role="row"]:focus')).to_have_count(1)
    await press("End")
    await press("Home")
    await expect(_row(page, left.root)).to_be_focused()
    await expect(_row(page, left.root)).to_have_attribute("aria-level", "1")
    await press("Tab")
    await expect(page.get_by_role("link", name="succeeded").first).to_be_focused()


@pytest.mark.thorough
async def test_next_difference_opens_collapsed_rows_and_shows_both_sides(
    page: Page, site: Site, records: Records
) -> None:
    left, right = await _pair(records)
    # The step has no row of its own: its agent's row carries it.
    await _open(page, site, left, right, f"?select={left.step}")
    await expect(_row(page, left.root)).to_have_attribute("aria-selected", "true")
    for _ in range(10):
        await page.get_by_role("button", name="Next difference").click()
        if await page.locator(f'[data-key="{left.opening_calls[0]}"]:focus').count():
            break

    await expect(_row(page, left.opening_calls[0])).to_be_focused()
    details = page.get_by_role("region", name="Details", exact=True)
    await expect(details.get_by_role("row").filter(has_text="Status")).to_contain_text(
        "Statussucceededfailed"
    )
    await expect(details.get_by_role("region", name="Both: input")).to_contain_text("0")
    await expect_query(page, select=str(left.opening_calls[0]))


@pytest.mark.thorough
async def test_changed_words_are_marked_and_announced(
    page: Page, site: Site, records: Records
) -> None:
    runs = []
    for answer in ("pulse 78, <b>calm</b> and well", "pulse 81, <b>calm</b> and well"):
        run = await records.record(sample_run(sub_plans=1, title="Told apart", finished=False))
        await records.write(
            ToolCallFinished(
                at=START + timedelta(seconds=1),
                root_plan_id=run.root,
                plan_id=run.root,
                step_id=run.step,
                tool_call_id=run.opening_calls[0],
                status=Status.SUCCEEDED,
                result=answer,
            )
        )
        runs.append(run)
    left, right = runs
    await _open(page, site, left, right, f"?select={left.opening_calls[0]}")
    shown = page.get_by_role("region", name="Difference: output")

    await expect(shown.get_by_role("deletion")).to_have_text("removed: 78")
    await expect(shown.get_by_role("insertion")).to_have_text("added: 81")
    await expect(shown).to_contain_text("<b>calm</b> and well")
    assert await violations(page) == []
    await page.get_by_role("switch", name="Each side by itself").check()
    await expect(page.get_by_role("region", name="Right: output")).to_contain_text("81")
    await expect(shown).to_have_count(0)


@pytest.mark.thorough
async def test_comparison_sides_link_to_records_and_can_be_swapped(
    page: Page, site: Site, records: Records
) -> None:
    left, right = await _pair(records)
    await _open(page, site, left, right)
    await page.get_by_role("link", name="Swap sides").click()
    await page.wait_for_url(f"**/compare/{right.root}/{left.root}")

    await expect(_row(page, right.opening_calls[2])).to_contain_text("removed")
    await expect(_row(page, right.opening_calls[1]).locator(".delta.duration")).to_contain_text(
        "−1m"
    )
    await _row(page, right.opening_calls[1]).get_by_role("link").nth(1).click()
    await expect(selected(page)).to_have_attribute("data-key", str(left.opening_calls[1]))


async def test_comparison_offers_runs_with_the_same_title(
    page: Page, site: Site, records: Records
) -> None:
    first = await records.record(sample_run(title="Offered twice"))
    second = await records.record(
        sample_run(title="Offered twice", start=START + timedelta(days=1))
    )
    await page.goto(f"{site.address}/compare/{second.root}")

    await expect(page.get_by_role("heading", name="Compare “Offered twice” with")).to_be_visible()
    offered = page.get_by_role("region", name="Same title").get_by_role("listitem")
    await offered.first.get_by_role("link").click()
    await page.wait_for_url(f"**/compare/{first.root}/{second.root}")


@pytest.mark.thorough
async def test_comparison_of_a_run_with_itself_has_no_differences(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run(title="Alone"))
    await _open(page, site, run, run)

    await expect(page.get_by_text("The runs do not differ.")).to_be_visible()
    await expect(page.get_by_role("button", name="Next difference")).to_be_disabled()


@pytest.mark.thorough
async def test_unknown_duration_is_not_shown_as_an_equal_duration(
    page: Page, site: Site, records: Records
) -> None:
    left = await records.record(sample_run(title="Ended"))
    right = await records.record(sample_run(title="Open", finished=False))
    await _open(page, site, left, right)

    totals = page.get_by_role("region", name="Totals").get_by_role("row", name="Difference")
    await expect(totals.get_by_role("cell").nth(0)).to_have_text("–")
    await expect(totals.get_by_role("cell").nth(1)).to_have_text("=")


@pytest.mark.thorough
async def test_comparison_with_an_unknown_run_names_it(
    page: Page, site: Site, records: Records
) -> None:
    run, missing = await records.record(sample_run()), sample_run()
    await page.goto(f"{site.address}/compare/{run.root}/{missing.root}")

    await expect(page.get_by_text(f"No run has the id {missing.root}")).to_be_visible()


@pytest.mark.thorough
async def test_comparison_of_thousands_of_rows_renders_only_visible_ones(
    page: Page, site: Site, records: Records
) -> None:
    left, right = [
        await records.record(sample_run(sub_plans=1_000, title="Long compared")) for _ in range(2)
    ]
    await _open(page, site, left, right)
    await _row(page, left.root).focus()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("End")

    last = page.locator('[role="row"]:focus')
    await expect(last).to_have_attribute("aria-rowindex", "1004")
    await expect(last).to_be_in_viewport()
    assert await page.evaluate("document.querySelectorAll('*').length") < 3_000


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("locale", "name", "title"),
    [("en-US", "Compare", "Compare: Compared"), ("zh-CN", "对比", "对比：Compared")],
)
async def test_comparison_is_in_english_and_chinese(
    browser: Browser, site: Site, records: Records, locale: str, name: str, title: str
) -> None:
    left, right = await _pair(records)
    context = await browser.new_context(locale=locale)
    page = await context.new_page()
    await _open(page, site, left, right)

    await expect(page.get_by_role("heading", name=name, exact=True)).to_be_visible()
    await expect(page).to_have_title(f"{title} · Tracer")
    await context.close()


@pytest.mark.thorough
async def test_comparison_on_a_small_screen_does_not_cut_the_differences(
    page: Page, site: Site, records: Records
) -> None:
    left, right = await _pair(records)
    await page.set_viewport_size({"width": 360, "height": 740})
    await _open(page, site, left, right)
    await _row(page, left.root).focus()
    await page.keyboard.press("ArrowLeft")
    counts = page.locator('[role="row"] .below')
    await expect(counts.first).to_have_attribute("title", re.compile(r"^\d+ differences? below$"))
    cut = await page.locator('[role="row"] .marks, [role="row"] .below').evaluate_all(
        "all => all.filter(each => each.scrollWidth > each.clientWidth).length"
    )

    assert cut == 0


@pytest.mark.thorough
async def test_long_agent_name_fits_a_small_screen(
    page: Page, site: Site, records: Records
) -> None:
    left, right = [sample_run(title="Compared") for _ in range(2)]
    right.events[0] = right.events[0].model_copy(update={"agent_name": "w" * 60})
    for run in (left, right):
        await records.record(run)
    await page.set_viewport_size({"width": 360, "height": 740})
    await _open(page, site, left, right)

    name = page.get_by_role("region", name="Right").get_by_text("w" * 60)
    box = await settled_box(name)
    assert box["x"] + box["width"] <= 360
