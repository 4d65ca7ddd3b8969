"""Runs that continue each other, in the list and on the run page."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from playwright.async_api import Browser, expect

from tests.contract.moments import START, Moments
from tests.journeys.axe import violations
from tests.journeys.conftest import PATIENCE, Records, Site
from tests.journeys.tree_page import open_run, row
from tracer.clock import utc_now
from tracer.records import new_id
from tracer.records.events import Event

TEXTS = {
    "en-US": ("2 parts", "continued 14h 0m later by another process", "2 parts; the first alone"),
    "zh-CN": ("2 个部分", "14小时 0分钟后由另一进程接续", "共 2 个部分"),
}


def recorded(events: list[Event], hours: float, recorder_id: UUID) -> list[Event]:
    """Return events as a process records them some hours from now."""
    moved = utc_now() - START + timedelta(hours=hours)
    return [
        each.model_copy(update={"at": each.at + moved, "recorder_id": recorder_id})
        for each in events
    ]


@pytest.mark.parametrize("language", TEXTS)
async def test_follow_up_appears_on_the_open_page_and_in_the_list(
    browser: Browser, site: Site, records: Records, language: str
) -> None:
    in_list, boundary, in_header = TEXTS[language]
    title = f"Book a trip {new_id()}"
    first, later = Moments(), Moments()
    # A page waits for parts until ten minutes after the end.
    await records.write(
        *recorded(
            [
                first.plan_started(title=title, agent_name="booker"),
                first.step_started(),
                first.call_started(0, name="ask"),
                first.call_finished(0),
                first.plan_finished(14 * 3600, summary="Asked."),
            ],
            -14,
            new_id(),
        )
    )
    context = await browser.new_context(locale=language)
    try:
        context.set_default_timeout(PATIENCE)
        page = await context.new_page()
        await open_run(page, site.address, first.root)
        header = page.locator(".run-header")
        await expect(header).not_to_contain_text(in_header)

        follow_up: list[Event] = [
            later.plan_started(follows_calls=(first.call,), agent_name="booker"),
            later.step_started(),
            later.call_started(2, name="pay"),
            later.call_finished(3),
            later.plan_finished(4, summary="Booked."),
        ]
        await records.write(*recorded(follow_up, 0, new_id()))
        await records.projection.link()

        await expect(row(page, later.root)).to_be_visible(timeout=2_000)
        await expect(row(page, later.root).locator(".boundary")).to_have_text(boundary)
        await expect(header).to_contain_text(in_header)
        await expect(header).to_contain_text("Booked.")
        assert await violations(page) == []
        await page.goto(f"{site.address}/runs?q={title}")
        item = page.get_by_role("row").filter(has_text=title)
        await expect(item).to_have_count(1)
        await expect(item).to_contain_text(in_list)
        assert await violations(page) == []
        await records.writer.delete_run(first.root, all_parts=False)
        await records.projection.link()
        await open_run(page, site.address, later.root)
        assert await violations(page) == []
    finally:
        await context.close()
