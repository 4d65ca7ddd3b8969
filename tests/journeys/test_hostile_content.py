"""The viewer shows recorded HTML, huge values and incomplete runs safely."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from playwright.async_api import Page, expect
from pydantic import ValidationError

from tests.journeys.conftest import Records, Site
from tests.journeys.tree_page import (
    bar,
    details,
    expect_query,
    open_run,
    row,
    search_field,
)
from tests.sample_runs import START, sample_run
from tracer.clock import utc_now
from tracer.records import Status, new_id
from tracer.records.events import (
    EVENT,
    Event,
    PlanStarted,
    ToolCallFinished,
    ToolCallStarted,
    event_json,
)

HTML = "<img src=x onerror='window.harmed = true'><script>window.harmed = true</script>"
TRICKS = f"{HTML} \x1b[31mred\x00 \u202eexe.txt"


async def test_recorded_html_is_shown_as_text(page: Page, site: Site, records: Records) -> None:
    run = sample_run(sub_plans=0, title=TRICKS, finished=False, start=utc_now())
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
    await page.goto(f"{site.address}/runs")
    await expect(page.get_by_role("link", name="<script>").first).to_be_visible()
    await open_run(page, site.address, run.root, select=call)

    shown = details(page).get_by_role("region", name="Result")
    await expect(shown).to_have_text(f"{HTML} ␛[31mred␛0000 ⟨U+202E⟩exe.txt")
    await expect(row(page, call)).to_contain_text("<img src=x")
    await bar(page, call).hover()
    await search_field(page).fill("</SCRIPT>")
    await expect(row(page, call).locator("mark").first).to_have_text("</script>")
    await page.get_by_text("The record as the API gives it").click()
    await expect(details(page)).to_contain_text('"arguments": "<img src=x')
    await page.wait_for_url(lambda url: "q=" in url)
    await page.reload()
    await expect(search_field(page)).to_have_value("</SCRIPT>")
    assert await page.evaluate("window.harmed") is None
    assert await page.locator("main img, main script").count() == 0


@pytest.mark.thorough
async def test_deep_or_large_json_opens_and_is_searched_fast(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run(sub_plans=0, finished=False))
    deep = '{"<b>":' * 500 + '"bottom"' + "}" * 500  # 512 levels are stored
    long = json.dumps([{"number": number, "html": HTML} for number in range(50_000)])
    calls = [new_id(), new_id()]
    for call, result in zip(calls, (deep, long), strict=True):
        ids: dict[str, Any] = {"root_plan_id": run.root, "plan_id": run.root}
        ids |= {"step_id": run.step, "tool_call_id": call}
        await records.write(
            ToolCallStarted(at=START, **ids, name="read", position=9),
            ToolCallFinished(at=START, **ids, status=Status.SUCCEEDED, result=result),
        )
    for call, last in zip(calls, ("bottom", '"number": 49999'), strict=True):
        await open_run(page, site.address, run.root, select=call)
        if call == calls[1]:
            await page.get_by_role("button", name="Load all of it").click()
        find = page.get_by_role("searchbox", name="Find in Result")
        shown = details(page).get_by_role("region", name="Result")
        await expect(shown.get_by_role("button").first).to_be_visible()
        assert await page.locator("*").count() < 3_000
        await find.fill(last.split(": ")[-1])
        await expect(shown.locator("mark").last).to_be_in_viewport()
        await expect(shown).to_contain_text(last)
        assert await page.evaluate("window.harmed") is None


@pytest.mark.thorough
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
    while await (more := page.get_by_role("button", name="B more")).count():
        await more.click()
    assert await shown.inner_text() == result


@pytest.mark.thorough
async def test_placeholders_and_orphans_are_shown_and_explained(
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
    await expect(details(page)).to_contain_text("The parent of this record has not arrived yet.")
    await row(page, "unplaced").click()
    await expect(details(page)).to_contain_text("move when their parents arrive")


ATTACKS = " ".join(
    [
        HTML,
        "\"><svg onload='window.harmed = true'></svg>",
        "</textarea></script><iframe srcdoc='<script>parent.harmed = true</script>'></iframe>",
        '[link](javascript:window.harmed=true) ![image](x"onerror="window.harmed=true)',
        "{{constructor.constructor('window.harmed = true')()}}",
        "<a href='javascript:window.harmed=true'>link</a><details open ontoggle='harmed=true'>",
    ]
)


def attacked_values(text: str) -> tuple[Any, ...]:
    """Return the forms of a text that a field may accept."""
    message = {"role": "user", "content": text, "name": text, text: [text]}
    return text, [text], [message], {text: {"type": text, "value": text}}


SAFE = {"type", "at", "status", "reason", "traceparent", "inferredFrom"}
"""Fields that are no text of the sender, or decide which record it is."""


def attacked(event: Event, text: str = ATTACKS) -> Event:
    """Return an event with attacks in all fields that accept them."""
    fields = json.loads(event_json(event))
    for name, info in type(event).model_fields.items():
        alias = info.alias or name
        if alias in SAFE or alias.endswith("Id"):
            continue
        for value in attacked_values(text):
            try:
                EVENT.validate_python(fields | {alias: value})
            except ValidationError:
                continue
            fields[alias] = value
            break
    for items, names in (("steps", "agentName request"), ("toolCalls", "name arguments toolType")):
        for item in fields.get(items) or ():
            item |= dict.fromkeys(names.split(), text)
    if "error" in type(event).model_fields:
        error = dict.fromkeys(("type", "message", "stack"), text)
        fields |= {"status": "failed", "error": error}
    return EVENT.validate_python(fields)


async def test_html_in_any_text_of_any_record_is_shown_as_text_in_the_details(
    page: Page, site: Site, records: Records
) -> None:
    run = sample_run(sub_plans=1)
    await records.write(*map(attacked, run.events))

    for record in (run.root, run.step, run.think_act, run.opening_calls[0]):
        await open_run(page, site.address, run.root, select=record)
        pane = details(page)
        await expect(pane).to_contain_text("<img src=x onerror")
        for _ in range(2):  # some sections are inside of others
            closed = pane.locator("details:not([open]) > summary, [aria-expanded=false]")
            for button in reversed(await closed.all()):
                if await button.is_visible():
                    await button.click()
        await expect(pane.get_by_text("The record as the API gives it").first).to_be_visible()
        for tag in ("img", "script", "iframe", "svg[onload]", "a[href^=javascript]"):
            assert await pane.locator(tag).count() == 0, (record, tag)
        assert await page.evaluate("window.harmed") is None


async def test_html_is_shown_as_text_in_overview_facets_and_found_records(
    page: Page, site: Site, records: Records
) -> None:
    run = sample_run(sub_plans=1, start=utc_now())
    await records.write(*(attacked(each, HTML) for each in run.events))
    await records.roll_up(run.root)
    other = await records.record(sample_run(start=utc_now()))

    async def check() -> None:
        assert await page.evaluate("window.harmed") is None
        tags = page.locator("main img, main script, main iframe, option img, [role=dialog] img")
        assert await tags.count() == 0

    await page.goto(site.address)
    await expect(page.get_by_role("region", name="Where runs failed")).to_contain_text("<img src=x")
    await expect(page.get_by_role("region", name="Spend")).to_contain_text("<img src=x")
    await check()
    await page.get_by_role("combobox", name="Agent").select_option(HTML)
    await expect(page.get_by_text("Remove the filters to see")).to_be_visible()
    await check()

    await page.goto(f"{site.address}/runs")
    await page.get_by_role("button", name="More filters").click()
    await expect(page.locator(f'a[href="/runs/{other.root}"]')).to_be_visible()
    key = page.get_by_label("Metadata key").locator("xpath=../..").get_by_role("button", name=HTML)
    await key.click()
    await expect(page.locator(f'a[href="/runs/{other.root}"]')).to_have_count(0)
    await expect(page.locator(f'a[href="/runs/{run.root}"]')).to_be_visible()
    await expect_query(page, metadataKey=HTML)
    await check()

    await page.goto(f"{site.address}/go/call_0")
    await expect(page.get_by_role("listitem").filter(has_text="<img src=x").first).to_be_visible()
    await check()
