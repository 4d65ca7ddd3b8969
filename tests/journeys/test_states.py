"""The states of pages without content: a sentence, and an action for the reader."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, Route, expect

from tests.journeys.conftest import Records, Site
from tests.profiles import quick_among
from tests.sample_runs import sample_run
from tracer.records import new_id


@pytest.mark.parametrize(
    "name", quick_among(["list", "run", "call", "tools", "compare", "picks"], ["list", "run"])
)
async def test_page_reports_an_unreachable_server_and_offers_to_try_again(
    page: Page, site: Site, records: Records, name: str
) -> None:
    run = await records.record(sample_run())
    other = await records.record(sample_run())
    path = {
        "list": "/runs",
        "run": f"/runs/{run.root}",
        "call": f"/tool-calls/{run.failed_call}",
        "tools": "/tools",
        "compare": f"/compare/{run.root}/{other.root}",
        "picks": f"/compare/{run.root}",
    }[name]
    await page.add_init_script(
        "addEventListener('click', () => { window.wasClicked = true }, true)"
    )

    async def answer_after_click(route: Route) -> None:
        # Not by a flag of this process: the page also tries again by itself.
        was_clicked = await page.evaluate("window.wasClicked === true")
        await (route.continue_() if was_clicked else route.abort())

    await page.route("**/api/**", answer_after_click)
    await page.goto(site.address + path)
    alert = page.get_by_role("alert")
    await expect(alert).to_have_count(1)
    await expect(alert).to_contain_text("The server does not answer.")
    box = await alert.bounding_box()
    assert box is not None
    assert box["width"] > 300

    await alert.get_by_role("button", name="Try again").click()
    await expect(alert).to_have_count(0)
    await expect(page.locator(".skeleton")).to_have_count(0)


async def test_page_of_an_unknown_run_links_to_the_list(page: Page, site: Site) -> None:
    await page.goto(f"{site.address}/runs/{new_id()}")
    await expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    await page.get_by_role("link", name="To the run list").click()
    await page.wait_for_url("**/runs")
