"""Ten questions of a support engineer: from the run list to the record in at most four actions."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

import pytest
from playwright.async_api import Page, expect

from tests.journeys.conftest import Records, Site
from tests.journeys.test_hostile_content import HTML, TRICKS
from tests.journeys.tree_page import query_of, selected
from tests.sample_runs import SampleRun, sample_run
from tracer.clock import utc_now
from tracer.records import new_id
from tracer.records.events import (
    ChosenToolCall,
    ErrorInfo,
    Event,
    PlanFinished,
    PlanStarted,
    ThoughtRecorded,
    ToolCallFinished,
)


def refund_run(mark: str) -> SampleRun:
    """Return a run whose texts contain `mark`, so that a test finds its own run."""
    run = sample_run(sub_plans=1, start=utc_now())
    run.events = [_told(run, event, mark) for event in run.events]
    return run


def _told(run: SampleRun, event: Event, mark: str) -> Event:
    changes: dict[str, Any] = {}
    match event:
        case PlanStarted(plan_id=plan_id) if plan_id == run.root:
            changes["user_request"] = f"{mark} Where is the money of my order?"
        case PlanFinished(plan_id=plan_id) if plan_id == run.root:
            changes["summary"] = "Your refund for INV-31337 is done"
        case PlanFinished():
            changes["summary"] = "The ledger holds four thousand talers"
        case ThoughtRecorded():
            changes["tool_calls"] = tuple(
                _with_arguments(call) if call.tool_call_id in run.opening_calls else call
                for call in event.tool_calls
            )
        case ToolCallFinished(tool_call_id=call_id) if call_id == run.failed_call:
            changes["error"] = ErrorInfo(type="ValueError", message="the printer is on fire")
        case ToolCallFinished():
            changes["result"] = '{"amount": 129.95, "name": "مُحَمَّد", "note": "退款单已完成"}'
    return event.model_copy(update=changes)


def _with_arguments(call: ChosenToolCall) -> ChosenToolCall:
    arguments = '{"file": "notes.txt", "customer": "Zoë Krüger"}'
    return call.model_copy(update={"arguments": arguments})


def _root(run: SampleRun) -> UUID:
    return run.root


def _call(run: SampleRun) -> UUID:
    return run.opening_calls[0]


QUESTIONS = {
    "the refund": ("refund done", _root, "refund"),
    "a number in a result": ("129.95", _call, "129.95"),
    "a sub-agent's answer": ("thousand talers", lambda run: run.sub_plans[0], "thousand"),
    "a Chinese word": ("完成", _call, "完成"),
    "one Chinese character": ("单", _call, "单"),
    "an Arabic word": ("محمد", _call, "مُحَمَّد"),
    "an error's text": ("printer fire", lambda run: run.failed_call, "printer"),
    "an argument": ("kruger", _call, "Krüger"),
    "a file name": ("notes.txt", _call, "notes.txt"),
    "words of two records": ("ledger printer", None, ""),
    "a phrase": ('"INV-31337 is done"', _root, "INV-31337 is done"),
}


@pytest.mark.parametrize("question", QUESTIONS)
async def test_question_leads_from_the_list_to_the_record(
    page: Page, site: Site, records: Records, question: str
) -> None:
    words, answer, marked = QUESTIONS[question]
    mark = f"m{new_id().hex[-10:]}"
    run = await records.record(refund_run(mark))
    await page.goto(f"{site.address}/runs")

    await page.get_by_role("searchbox", name="Search").fill(f"{mark} {words}")
    found = page.get_by_role("row").filter(has=page.locator(f'a[href*="/runs/{run.root}"]'))
    place = found.locator(".place", has=page.locator("mark", has_text=marked)).first
    await expect(place).to_be_visible()
    await place.get_by_role("link").click()

    await expect(selected(page)).to_be_visible()
    chosen = query_of(page)["select"]
    if answer is not None:
        assert chosen in _rows_of(run, answer(run))
    else:
        await expect(page.get_by_role("search")).to_contain_text(re.compile(r"\d of \d"))


def _rows_of(run: SampleRun, record: UUID) -> set[str]:
    """Return the ids under which a record is shown: an answer is also the result of a step."""
    return {str(record), str(run.step)} if record == run.root else {str(record)}


async def test_search_in_a_run_steps_through_words_of_whole_texts(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(refund_run("whole"))
    await page.goto(f"{site.address}/runs/{run.root}")

    field = page.get_by_role("searchbox", name="Search in this run")
    await field.fill("printer talers")
    await expect(page.get_by_role("search")).to_contain_text("2 hits")
    await field.press("Enter")
    await expect(page.get_by_role("search")).to_contain_text("1 of 2")
    await field.press("Enter")
    await expect(page.get_by_role("search")).to_contain_text("2 of 2")


HOSTILE = [
    HTML,
    TRICKS.partition("\x1b")[0],
    "<svg onload=window.harmed=true><b>bold</b>",
    "<mark>not a match</mark>",
    '"><a href="javascript:window.harmed=true">click</a>',
    "{{ window.harmed = true }} ${window.harmed=true}",
    "&lt;b&gt; &#60;b&#62;",
    "</span></mark><!-- <style>* {display: none}</style>",
    "[link](javascript:window.harmed=true) `code` **bold**",
]


async def test_snippets_of_hostile_texts_are_text(page: Page, site: Site, records: Records) -> None:
    for text in HOSTILE:
        await records.record(sample_run(start=utc_now(), title=f"hostileneedle {text}"))

    await page.goto(f"{site.address}/runs?q=hostileneedle")
    for text in HOSTILE:
        place = page.locator(".place", has_text=f"hostileneedle {text}").first
        await expect(place).to_be_visible()
        assert await place.locator("mark").all_inner_texts() == ["hostileneedle"]
        assert await place.locator("img, script, svg[onload], b, a[href^=javascript]").count() == 0
    assert await page.evaluate("window.harmed") is None


async def test_search_without_words_explains_what_to_write(page: Page, site: Site) -> None:
    await page.goto(f"{site.address}/runs?q=-nothing")
    await expect(page.get_by_text("needs a word or a phrase")).to_be_visible()
