"""The viewer's page of a run that is still running."""

from __future__ import annotations

from datetime import timedelta

import pytest
from playwright.async_api import Page, expect

from tests.journeys.conftest import Records, Site
from tests.journeys.tree_page import (
    details,
    expect_focus,
    open_run,
    row,
    selected,
    settled_box,
)
from tests.sample_runs import START, SampleRun, sample_run
from tracer.clock import utc_now
from tracer.records import Status, new_id
from tracer.records.events import Event, PlanFinished, PlanStarted, StepFinished, ToolCallFinished

LATER = START + timedelta(minutes=1)

# Not `page.clock`, which belongs to the context that all pages of the session share.
_STANDING_CLOCK = """
const now = %d, Real = Date
globalThis.Date = class extends Real {
  constructor(...given) { given.length ? super(...given) : super(now) }
  static now() { return now }
}
"""


def _endings(run: SampleRun) -> list[Event]:
    """Return the events that end what the run left open."""
    calls = [
        ToolCallFinished(
            at=LATER,
            root_plan_id=run.root,
            plan_id=run.root,
            step_id=run.step,
            tool_call_id=call,
            status=Status.SUCCEEDED,
            result="seen live",
        )
        for call in run.opening_calls
    ]
    step = StepFinished(
        at=LATER,
        root_plan_id=run.root,
        plan_id=run.root,
        step_id=run.step,
        status=Status.SUCCEEDED,
    )
    plan = PlanFinished(at=LATER, root_plan_id=run.root, plan_id=run.root, status=Status.SUCCEEDED)
    return [*calls, step, plan]


def _new_sub_plan(run: SampleRun, number: int) -> PlanStarted:
    """Return another sub-plan, opened by the call of that number."""
    return PlanStarted(
        at=LATER,
        root_plan_id=run.root,
        plan_id=new_id(),
        parent_plan_id=run.root,
        tool_call_id=run.opening_calls[number],
        position=1,
        title="Opened while somebody looks",
        depth=1,
    )


async def test_page_of_a_running_run_is_updated_until_the_run_ends(
    page: Page, site: Site, records: Records
) -> None:
    # The page calls a run live for a minute after its last heartbeat, by the browser's clock.
    await page.add_init_script(_STANDING_CLOCK % (1000 * utc_now().timestamp()))
    run = await records.record(sample_run(finished=False))
    await open_run(page, site.address, run.root, select=run.opening_calls[0])
    await expect(page.get_by_text("Live", exact=True)).to_be_visible()
    await expect(details(page)).to_contain_text("running")

    await records.write(*_endings(run))

    await expect(details(page).get_by_role("region", name="Result")).to_contain_text("seen live")
    await expect(page.get_by_text("Live", exact=True)).to_have_count(0)


async def test_a_new_sub_plan_appears_below_its_call(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run(finished=False))
    await open_run(page, site.address, run.root)
    started = _new_sub_plan(run, 0)
    await records.write(started)

    await expect(row(page, started.plan_id)).to_have_attribute("aria-level", "5")


async def test_update_preserves_selection_focus_and_collapsed_rows(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run(finished=False))
    first, last = run.opening_calls
    await open_run(page, site.address, run.root)
    await row(page, last).locator("[data-arrow]").click()
    await expect(row(page, last)).to_have_attribute("aria-expanded", "false")
    await row(page, last).focus()
    await row(page, last).press("Enter")

    above, below = _new_sub_plan(run, 0), _new_sub_plan(run, 1)
    await records.write(above, below)

    await expect(row(page, above.plan_id)).to_be_visible()
    await expect(row(page, below.plan_id)).to_have_count(0)
    await expect(row(page, last)).to_have_attribute("aria-expanded", "false")
    await expect(selected(page)).to_have_attribute("data-key", str(last))
    await expect_focus(page, last)
    await page.keyboard.press("ArrowUp")
    await expect_focus(page, above.plan_id)
    assert first != last


@pytest.mark.thorough
async def test_update_does_not_move_the_visible_row(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run(sub_plans=100, finished=False))
    watched = run.opening_calls[60]
    await open_run(page, site.address, run.root, select=run.sub_plans[59])
    await row(page, watched).click()
    await expect(row(page, run.sub_plans[59])).to_be_in_viewport()
    before = await settled_box(row(page, watched))

    started = _new_sub_plan(run, 59)
    await records.write(started)

    await expect(row(page, started.plan_id)).to_be_visible()
    assert await settled_box(row(page, watched)) == before


async def test_page_keeps_the_run_during_an_outage_and_then_catches_up(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run(finished=False))
    await open_run(page, site.address, run.root)
    await page.context.set_offline(True)
    await expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    await expect(row(page, run.step)).to_be_visible()

    started = _new_sub_plan(run, 0)
    await records.write(started)
    await page.context.set_offline(False)
    await expect(row(page, started.plan_id)).to_be_visible()
    await expect(page.get_by_role("alert")).to_have_count(0)
