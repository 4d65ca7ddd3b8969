"""The list of conversations, the page of one, and a run's place in it."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Browser, Page, ViewportSize, expect

from tests.contract.moments import Moments
from tests.journeys.axe import violations
from tests.journeys.conftest import PATIENCE, VIEWPORT, Records, Site
from tests.journeys.tree_page import expect_query
from tracer.records import Status, new_id
from tracer.records.events import ErrorInfo, Event

PHONE = ViewportSize(width=390, height=844)
TEXTS = {
    "en-US": ("turn 2 of 3", "Next turn", "Conversations", "1 failed"),
    "zh-CN": ("第 2 轮，共 3 轮", "下一轮", "会话", "1 轮失败"),
}
LOST = ErrorInfo(type="ConnectError", message="payments.internal:443")


def turn(session: str, at: int, question: str, answer: str, **more: Any) -> list[Event]:
    run = Moments()
    return [
        run.plan_started(
            at,
            session_id=session,
            subject="customer-77",
            agent_name="billing",
            user_request=question,
            **more,
        ),
        run.step_started(at + 1, agent_name="billing"),
        run.call_started(at + 2, name="refund"),
        run.call_finished(at + 3),
        run.plan_finished(at + 4, summary=answer),
    ]


def failing_turn(session: str, at: int, question: str) -> list[Event]:
    run = Moments()
    failed: dict[str, Any] = {"status": Status.FAILED, "error": LOST}
    return [
        run.plan_started(at, session_id=session, agent_name="billing", user_request=question),
        run.step_started(at + 1, agent_name="billing"),
        run.call_started(at + 2, name="refund"),
        run.call_finished(at + 3, **failed),
        run.step_finished(at + 4, **failed),
        run.plan_finished(at + 5, **failed),
    ]


async def opened(browser: Browser, language: str, size: ViewportSize) -> Page:
    context = await browser.new_context(locale=language, viewport=size)
    context.set_default_timeout(PATIENCE)
    return await context.new_page()


@pytest.mark.parametrize("size", [VIEWPORT, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("language", TEXTS)
async def test_reader_finds_what_the_user_wanted_and_where_it_went_wrong(
    browser: Browser, site: Site, records: Records, language: str, size: ViewportSize
) -> None:
    turn_of, next_turn, name, one_failed = TEXTS[language]
    session = f"conv/{new_id()}"
    question = f"Why do I still pay for {session}?"
    await records.write(
        *turn(session, 0, question, "An **annual** add-on is active."),
        *failing_turn(session, 100, "Then refund it."),
        *turn(session, 200, "أين أموالي؟", "لم يتم رد المبلغ."),
    )
    await records.projection.link()
    page = await opened(browser, language, size)
    try:
        await page.goto(f"{site.address}/sessions")
        item = page.get_by_role("row").filter(has_text=question)
        await expect(item).to_contain_text(one_failed)
        assert await violations(page) == []

        await item.get_by_role("link").first.click()  # the first action

        await expect(page.get_by_role("heading", level=1)).to_contain_text(question)
        await expect(page.locator("strong", has_text="annual")).to_be_visible()
        arabic = page.locator(".question .markdown p", has_text="أين")
        await expect(arabic).to_have_css("direction", "rtl")
        failure = page.locator(".failure", has_text="payments.internal:443")
        await expect(failure).to_be_visible()
        assert await violations(page) == []

        await page.locator(".fold").nth(1).click()
        await expect(page.locator(".tree .row")).not_to_have_count(0)
        assert await violations(page) == []

        await failure.click()  # the second one

        place = page.locator(".run-header .turn")
        if size is PHONE:
            await page.locator(".run-header").get_by_role("button").first.click()
        await expect(place).to_contain_text(turn_of)
        assert await violations(page) == []
        await place.get_by_role("link", name=next_turn).click()
        if size is PHONE:
            await page.locator(".run-header").get_by_role("button").first.click()
        await expect(page.locator(".run-header .turn")).to_contain_text("3")
        await page.goto(f"{site.address}/runs")
        await page.get_by_role("link", name=name, exact=True).click()
        await expect(page.get_by_role("heading", level=1)).to_have_text(name)
    finally:
        await page.context.close()


async def test_brackets_step_through_turns(browser: Browser, site: Site, records: Records) -> None:
    session = f"long-{new_id()}"
    for number in range(120):
        await records.write(*turn(session, 10 * number, f"Question {number}", f"Answer {number}"))
    page = await opened(browser, "en-US", VIEWPORT)
    try:
        await page.goto(f"{site.address}/sessions/{session}")
        chosen = page.locator(".turn.chosen")
        await expect(page.locator(".turn").first).to_be_visible()

        await page.keyboard.press("]")
        await expect(chosen).to_contain_text("Question 0")
        await page.keyboard.press("]")
        await expect(chosen).to_contain_text("Question 1")
        await page.keyboard.press("[")
        await expect(chosen).to_contain_text("Question 0")

        last = await site.read(f"/api/sessions/{session}?limit=500")
        turns: Any = last["turns"]
        await page.goto(f"{site.address}/sessions/{session}?turn={turns[110]['rootPlanId']}")
        await expect(chosen).to_contain_text("Question 110")
        await expect(chosen).to_be_in_viewport()
    finally:
        await page.context.close()


async def test_conversations_are_listed_by_time(
    browser: Browser, site: Site, records: Records
) -> None:
    question = f"When was {new_id()}?"
    await records.write(*turn(f"dated-{new_id()}", 0, question, "On that day."))
    await records.projection.link()
    page = await opened(browser, "en-US", VIEWPORT)
    try:
        await page.goto(f"{site.address}/sessions")
        item = page.get_by_role("row").filter(has_text=question)
        await expect(item).to_be_visible()

        await page.get_by_role("combobox", name="Time").select_option("1h")
        await expect(item).to_have_count(0)
        await expect_query(page, last="1h")
        await page.get_by_role("combobox", name="Time").select_option("all")
        await expect(item).to_be_visible()
    finally:
        await page.context.close()


async def test_deleted_conversation_is_gone(browser: Browser, site: Site, records: Records) -> None:
    session = f"gone-{new_id()}"
    await records.write(*turn(session, 0, f"Forget {session}", "Yes."))
    await records.projection.link()
    page = await opened(browser, "en-US", VIEWPORT)
    try:
        await page.goto(f"{site.address}/sessions/{session}")
        await page.get_by_role("button", name="Delete conversation").click()
        dialog = page.get_by_role("dialog")
        await dialog.get_by_role("button", name="Delete conversation").click()

        await expect(page.get_by_role("heading", level=1)).to_have_text("Conversations")
        await expect(page.get_by_role("row").filter(has_text=session)).to_have_count(0)
        await page.goto(f"{site.address}/sessions/{session}")
        await expect(page.locator("main")).to_contain_text(f"No conversation has the id {session}")
    finally:
        await page.context.close()
