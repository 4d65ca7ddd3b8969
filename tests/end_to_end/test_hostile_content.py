from __future__ import annotations

from datetime import timedelta

from playwright.async_api import Page, expect

from tests.end_to_end.conftest import Records, Site
from tests.end_to_end.tree_page import details, open_run, row
from tests.sample_runs import START, sample_run
from tracer.events import PlanStarted, ToolCallFinished, ToolCallStarted
from tracer.ids import new_id
from tracer.status import Status

HTML = "<img src=x onerror='window.harmed = true'><script>window.harmed = true</script>"
TRICKS = f"{HTML} \x1b[31mred\x00 \u202eexe.txt"


async def test_what_an_agent_recorded_is_shown_as_text(
    page: Page, site: Site, records: Records
) -> None:
    run = sample_run(sub_plans=0, title=TRICKS, finished=False)
    await records.record(run)
    call = new_id()
    started = ToolCallStarted(
        at=START,
        root_plan_id=run.root,
        plan_id=run.root,
        step_id=run.step,
        tool_call_id=call,
        name=TRICKS,
        arguments=TRICKS,
        position=0,
    )
    finished = ToolCallFinished(
        at=START,
        root_plan_id=run.root,
        plan_id=run.root,
        step_id=run.step,
        tool_call_id=call,
        status=Status.SUCCEEDED,
        result=TRICKS,
    )
    await records.write(started, finished)
    await page.goto(site.address)
    await expect(page.get_by_role("link", name="<script>").first).to_be_visible()
    await open_run(page, site.address, run.root, select=call)

    shown = details(page).get_by_role("region", name="Result")
    await expect(shown).to_have_text(f"{HTML} ␛[31mred␛0000 ⟨U+202E⟩exe.txt")
    await expect(row(page, call)).to_contain_text("<img src=x")
    assert await page.evaluate("window.harmed") is None
    assert await page.locator("main img, main script").count() == 0


async def test_a_result_of_megabytes_is_loaded_on_demand(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run(sub_plans=1, finished=False))
    call, result = run.opening_calls[0], "0123456789" * 500_000
    await records.write(
        ToolCallFinished(
            at=START + timedelta(minutes=1),
            root_plan_id=run.root,
            plan_id=run.root,
            step_id=run.step,
            think_act_id=run.think_act,
            tool_call_id=call,
            status=Status.SUCCEEDED,
            result=result,
        )
    )
    await open_run(page, site.address, run.root, select=call)
    shown = details(page).get_by_role("region", name="Result")

    await expect(page.get_by_text("The first part of 5MB.")).to_be_visible()
    await page.get_by_role("button", name="Load all of it").click()
    await expect(page.get_by_role("button", name="Show 1MB more")).to_be_visible()
    while await (more := page.get_by_role("button", name="more")).count():
        await more.click()
    assert await shown.inner_text() == result


async def test_placeholders_and_records_without_a_place_are_shown_and_explained(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    missing_call = new_id()
    stray = PlanStarted(
        at=START,
        root_plan_id=run.root,
        plan_id=new_id(),
        parent_plan_id=run.root,
        tool_call_id=missing_call,
        title="Came before its call",
        depth=1,
    )
    await records.write(stray)
    await open_run(page, site.address, run.root, select=missing_call)

    await expect(row(page, "unplaced")).to_have_attribute("aria-level", "1")
    await expect(row(page, missing_call)).to_contain_text("unknown")
    await expect(details(page)).to_contain_text("A placeholder")
    await expect(details(page)).to_contain_text("The parent of this record is not known yet.")
    await row(page, "unplaced").click()
    await expect(details(page)).to_contain_text("name a parent that is not known yet")
