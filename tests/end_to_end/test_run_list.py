from __future__ import annotations

from playwright.async_api import Page, expect

from tests.end_to_end.conftest import Records, Site
from tests.sample_runs import sample_run
from tracer.clock import utc_now


async def test_an_empty_list_tells_how_to_record_a_first_run(page: Page, empty_site: str) -> None:
    await page.goto(empty_site)

    await expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
    await expect(page.get_by_text("tracer demo --once")).to_be_visible()


async def test_the_demonstration_run_is_listed_and_leads_to_its_tree(
    page: Page, site: Site
) -> None:
    run = await site.read(f"/api/runs/{site.demo_run}")
    await page.goto(f"{site.address}/?agent={run['agentName']}")
    link = page.locator(f'a[href="/runs/{site.demo_run}"]')
    row = page.get_by_role("row").filter(has=link)

    for text in ("succeeded", str(run["agentName"]), str(run["toolCalls"])):
        await expect(row).to_contain_text(text)
    await link.click()
    await expect(page.get_by_role("tree")).to_be_visible()
    await expect(page).to_have_title(f"{run['title']} · Tracer")


async def test_a_new_run_appears_without_a_reload(page: Page, site: Site, records: Records) -> None:
    await page.goto(site.address)
    await expect(page.get_by_role("table")).to_be_visible()
    await records.record(sample_run(title="Just recorded", start=utc_now()))

    await expect(page.get_by_role("link", name="Just recorded")).to_be_visible()


async def test_while_the_server_is_away_the_list_stays_and_says_so(page: Page, site: Site) -> None:
    await page.goto(site.address)
    await expect(page.get_by_role("table")).to_be_visible()
    await page.context.set_offline(True)

    await expect(page.get_by_role("alert")).to_contain_text("The server does not answer")
    await expect(page.get_by_role("table")).to_be_visible()
    await page.context.set_offline(False)
    await expect(page.get_by_role("alert")).to_have_count(0)
