"""Runs of spans in the viewer: inferred links are marked, and the original spans are shown."""

from __future__ import annotations

from uuid import UUID

import httpx2
import pytest
from playwright.async_api import Page, expect

from tests.journeys.axe import violations
from tests.journeys.conftest import Records, Site
from tests.journeys.tree_page import details, open_run, row
from tests.otel.captured import bodies, spans_of
from tests.otel.made_traces import agent, make_span, spans_from, tool
from tests.sample_runs import sample_run
from tracer.records import new_id

TEAM = "agno-openinference-team-single"
PROTOBUF = {"content-type": "application/x-protobuf"}


async def _span_run(site: Site, records: Records) -> tuple[UUID, UUID, str]:
    """Record a run whose sub-agent lost its link, and return run, sub-plan and the call's id."""
    trace_id = new_id()
    spans = [
        {**span, "traceId": trace_id.hex}
        for span in (
            make_span(1, "workflow"),
            agent(2, "planner", parent=1),
            tool(3, "ask", '{"q":"How is p-1?"}', parent=2, at=(1, 9)),
            make_span(
                4, "POST /ask", {"my.own attribute": "kept <b>as it is</b>"}, parent=3, at=(2, 8)
            ),
            agent(5, "pharmacist", asked="How is p-1?", parent=1, at=(2, 8)),
        )
    ]
    await records.record_spans(spans_from(*spans))
    tree = await site.read(f"/api/plans/{trace_id}/tree")
    call = tree["agentExecutions"][0]["toolCalls"][0]  # type: ignore[index]
    return trace_id, UUID(call["subPlans"][0]["planId"]), call["toolCallId"]


async def test_inferred_parent_is_marked_and_explained(
    page: Page, site: Site, records: Records
) -> None:
    run, sub_plan, _ = await _span_run(site, records)

    await open_run(page, site.address, run, select=sub_plan)

    await expect(row(page, sub_plan)).to_contain_text("inferred")
    await expect(details(page)).to_contain_text("it was not recorded")


@pytest.mark.thorough
async def test_team_members_that_were_linked_by_time_are_marked_as_inferred(
    page: Page, site: Site, records: Records
) -> None:
    async with httpx2.AsyncClient(base_url=site.address, timeout=60) as client:
        for body in bodies(TEAM):
            answer = await client.post("/v1/traces", content=body, headers=PROTOBUF)
            assert answer.status_code == 200, answer.text
    await records.project()
    run = UUID(bytes=spans_of(TEAM)[0].trace_id)
    await page.goto(f"{site.address}/runs/{run}?records=all&level=subPlans")

    placed = page.get_by_role("treeitem", name="inferred")
    await expect(placed).to_have_count(2)
    for number in range(2):
        await expect(placed.nth(number)).to_have_attribute("aria-level", "5")
        await placed.nth(number).click()
        await expect(details(page)).to_contain_text("it was not recorded")
    assert await violations(page) == []


async def test_the_original_spans_of_a_record_can_be_opened(
    page: Page, site: Site, records: Records
) -> None:
    run, _, call = await _span_run(site, records)
    await open_run(page, site.address, run, select=call)

    await details(page).get_by_text("Spans", exact=True).click()

    await expect(details(page)).to_contain_text("POST /ask")
    await expect(details(page)).to_contain_text("kept <b>as it is</b>")
    assert await violations(page) == []


@pytest.mark.thorough
async def test_run_without_spans_offers_no_span_list(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run(sub_plans=0))
    await open_run(page, site.address, run.root, select=run.failed_call)
    await expect(details(page)).to_contain_text("the cuff is loose")

    await expect(details(page).get_by_text("Spans", exact=True)).to_have_count(0)
