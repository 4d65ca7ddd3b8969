"""The viewer's list of runs."""

from __future__ import annotations

from decimal import Decimal

import pytest
from playwright.async_api import Browser, Page, expect

from tests.contract.moments import Moments
from tests.journeys.conftest import Records, Site
from tests.sample_runs import START, sample_run
from tracer.clock import utc_now
from tracer.records import Status, new_id
from tracer.records.events import PlanStarted, ThoughtRecorded


async def test_empty_run_list_explains_how_to_record_a_first_run(
    page: Page, empty_site: str
) -> None:
    await page.goto(empty_site)

    await expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
    await expect(page.get_by_text("tracer demo --once")).to_be_visible()


async def test_the_demonstration_run_is_listed_and_leads_to_its_tree(
    page: Page, site: Site, demo_run: str
) -> None:
    run = await site.read(f"/api/runs/{demo_run}")
    await page.goto(f"{site.address}/runs?agent={run['agentName']}")
    link = page.locator(f'a[href="/runs/{demo_run}"]')
    row = page.get_by_role("row").filter(has=link)

    for text in ("succeeded", str(run["agentName"]), str(run["subAgents"])):
        await expect(row).to_contain_text(text)
    await link.click()
    await expect(page.get_by_role("tree")).to_be_visible()
    await expect(page).to_have_title(f"{run['title']} · Tracer")


@pytest.mark.usefixtures("demo_run")
async def test_a_new_run_appears_without_a_reload(page: Page, site: Site, records: Records) -> None:
    await page.goto(f"{site.address}/runs")
    await expect(page.get_by_role("table")).to_be_visible()
    await records.record(sample_run(title="Just recorded", start=utc_now()))

    await expect(page.get_by_role("link", name="Just recorded")).to_be_visible()


@pytest.mark.thorough
@pytest.mark.usefixtures("demo_run")
async def test_list_keeps_its_rows_and_reports_an_unreachable_server(
    page: Page, site: Site
) -> None:
    await page.goto(f"{site.address}/runs")
    await expect(page.get_by_role("table")).to_be_visible()
    await page.context.set_offline(True)

    await expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    await expect(page.get_by_role("table")).to_be_visible()
    await page.context.set_offline(False)
    await expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.thorough
@pytest.mark.parametrize("language", ["en-US", "zh-CN"])
async def test_list_fits_every_width_and_shows_costs_below_one_cent(
    browser: Browser, site: Site, records: Records, language: str
) -> None:
    root, step = new_id(), new_id()
    title = f"Little cost {language}"
    thought = ThoughtRecorded(
        at=START,
        root_plan_id=root,
        plan_id=root,
        step_id=step,
        think_act_id=new_id(),
        status=Status.SUCCEEDED,
        cost_usd=Decimal("0.000061"),
    )
    await records.write(PlanStarted(at=START, root_plan_id=root, plan_id=root, title=title))
    await records.write(thought)
    unpriced = {"think_act_id": new_id(), "cost_usd": None}
    await records.write(thought.model_copy(update=unpriced))
    context = await browser.new_context(locale=language)
    page = await context.new_page()
    await page.goto(f"{site.address}/?q={title}")
    cost = page.locator("td.cost")
    await expect(cost).to_have_text("≥ $0.000061")
    for width in (1440, 1130, 1100, 920, 900, 850, 820, 360):
        await page.set_viewport_size({"width": width, "height": 900})
        fits = "each => each.scrollWidth <= each.clientWidth"
        assert await cost.evaluate(fits), width
        assert await page.get_by_role("main").evaluate(fits), width
    await context.close()


@pytest.mark.parametrize(
    ("language", "unknown"),
    [pytest.param("en-US", "unknown", marks=pytest.mark.thorough), ("zh-CN", "未知")],
)
async def test_a_run_of_unknown_cost_does_not_look_free(
    browser: Browser, site: Site, records: Records, language: str, unknown: str
) -> None:
    run = Moments()
    title = f"Unknown cost {language}"
    thought = run.thought_started(at=1)
    ids = thought.model_dump(include={"at", "root_plan_id", "plan_id", "step_id", "think_act_id"})
    for event in (
        run.plan_started(title=title, agent_name="nurse"),
        run.step_started(),
        thought,
        ThoughtRecorded(status=Status.SUCCEEDED, input_tokens=10, output_tokens=5, **ids),
        run.step_finished(),
        run.plan_finished(),
    ):
        await records.write(event)
    context = await browser.new_context(locale=language)
    page = await context.new_page()
    await page.goto(f"{site.address}/?q={title}")
    await expect(page.locator("td.cost")).to_have_text(unknown)

    await page.goto(f"{site.address}/runs/{run.root}")
    await expect(page.get_by_role("main").get_by_text(unknown).first).to_be_visible()
    await context.close()


@pytest.mark.thorough
async def test_going_back_to_the_list_restores_its_scroll_position(
    page: Page, site: Site, records: Records
) -> None:
    runs = [await records.record(sample_run(sub_plans=0, title=f"Berth {n}")) for n in range(80)]
    first = page.locator(f'a[href="/runs/{runs[0].root}"]')
    await page.goto(f"{site.address}/?q=Berth")
    await page.locator(f'a[href="/runs/{runs[-1].root}"]').hover()
    await page.get_by_role("button", name="Show more").scroll_into_view_if_needed()
    await first.click()
    await expect(page.get_by_role("tree")).to_be_visible()
    await page.go_back()
    await expect(first).to_be_in_viewport()
    await expect(first).to_be_focused()

    await page.get_by_role("link", name="Tools").click()
    await page.get_by_role("link", name="Runs", exact=True).click()
    await expect(page.get_by_role("searchbox", name="Search")).to_be_in_viewport()
