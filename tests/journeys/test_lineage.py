"""The viewer's run page links calls, sub-plans and their ancestors."""

from __future__ import annotations

from uuid import UUID

import pytest
from playwright.async_api import Page, expect

from tests.journeys.conftest import Records, Site
from tests.journeys.tree_page import details, open_run, row, selected
from tests.sample_runs import sample_run
from tracer.records import new_id


async def test_sub_plan_and_its_tool_call_link_to_each_other(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    sub_plan, call = run.sub_plans[1], run.opening_calls[1]
    await open_run(page, site.address, run.root)

    await row(page, sub_plan).click()
    shown = details(page)
    await expect(shown.get_by_role("heading", name="Triggered by tool: check")).to_be_visible()
    await expect(shown.get_by_role("region", name="Parameters")).to_contain_text('"number": 1')

    await shown.get_by_role("link", name="Go to the tool call").click()
    await expect(selected(page)).to_have_attribute("data-key", str(call))
    await expect(shown.get_by_role("region", name="Arguments")).to_contain_text('"number": 1')
    await expect(shown.get_by_role("region", name="Result")).to_contain_text("well")

    await shown.get_by_role("link", name="pharmacist").click()
    await expect(selected(page)).to_have_attribute("data-key", str(sub_plan))
    await page.go_back()
    await expect(selected(page)).to_have_attribute("data-key", str(call))


async def test_every_sub_plan_of_the_demonstration_names_its_tool(
    page: Page, site: Site, demo_run: str
) -> None:
    tree = await site.read(f"/api/plans/{demo_run}/tree")
    sub_plans = _sub_plans(tree)
    assert len(sub_plans) >= 4

    for sub_plan in sub_plans:
        await open_run(page, site.address, demo_run, select=sub_plan["planId"])
        opener = sub_plan["parentActToolCall"]
        assert isinstance(opener, dict)
        heading = details(page).get_by_role("heading", name=f"Triggered by tool: {opener['name']}")
        await expect(heading).to_be_visible()
        await expect(row(page, sub_plan["planId"])).to_be_in_viewport()


@pytest.mark.thorough
async def test_breadcrumbs_show_the_path_from_the_root_plan_to_a_record(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root, select=run.sub_plans[0])
    crumbs = page.get_by_role("navigation", name="Lineage").get_by_role("link")

    assert await crumbs.all_inner_texts() == ["nurse", "LLM call 1", "check"]
    await crumbs.nth(0).click()
    await expect(selected(page)).to_have_attribute("data-key", str(run.root))


async def test_link_to_a_tool_call_opens_its_run_with_the_call_selected(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run(sub_plans=100))
    call = run.opening_calls[99]
    await page.goto(f"{site.address}/tool-calls/{call}")

    await page.wait_for_url(f"**/runs/{run.root}?select={call}")
    await expect(row(page, call)).to_be_in_viewport()
    await expect(selected(page)).to_have_attribute("data-key", str(call))


@pytest.mark.thorough
async def test_link_to_a_sub_plan_opens_its_run_with_the_plan_selected(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    plan = run.sub_plans[1]
    for folder in ("runs", "plans"):
        await page.goto(f"{site.address}/{folder}/{plan}")

        await page.wait_for_url(f"**/runs/{run.root}?select={plan}")
        await expect(details(page)).to_contain_text("Triggered by tool: check")


async def test_failed_call_shows_its_error_and_provider_id(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root, select=run.failed_call)

    for text in ("failed", "tool_error", "ValueError", "the cuff is loose", "call_0"):
        await expect(details(page)).to_contain_text(text)


@pytest.mark.thorough
async def test_details_of_a_round_show_thought_tokens_and_messages(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root, select=run.think_act)
    shown = details(page)

    await expect(shown.get_by_text("I check everything")).to_be_visible()
    await expect(shown).to_contain_text("100")
    await expect(shown.get_by_role("listitem").filter(has_text="User")).to_contain_text("Review")


async def test_page_of_an_unknown_id_says_so_and_links_to_the_list(page: Page, site: Site) -> None:
    unknown: UUID = new_id()
    paths = ("runs", "plans", "tool-calls", "nothing")
    for path in (*(f"/{folder}/{unknown}" for folder in paths), "/runs/nonsense", "/nothing"):
        await page.goto(site.address + path)
        await expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    await page.get_by_role("link", name="To the run list").click()
    await expect(page.get_by_role("table")).to_be_visible()


@pytest.mark.thorough
async def test_link_to_a_record_that_the_run_lacks_says_so(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    unknown = new_id()
    await open_run(page, site.address, run.root, select=unknown)

    await expect(details(page).get_by_role("status").first).to_contain_text(str(unknown))


def _sub_plans(node: dict[str, object]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for name in ("agentExecutions", "thinkActs", "toolCalls", "subPlans"):
        children = node.get(name, [])
        assert isinstance(children, list)
        for child in children:
            found += [child] if name == "subPlans" else []
            found += _sub_plans(child)
    return found
