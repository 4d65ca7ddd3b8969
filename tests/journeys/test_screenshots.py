"""The pictures of the documentation, taken anew where TRACER_SCREENSHOTS is set."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from playwright.async_api import Browser, Locator, Page, ViewportSize, expect

from tests.api.commands import serving_here
from tests.journeys.conftest import ROOT, record_demo

IMAGES = ROOT / "docs" / "images"

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(
        not os.environ.get("TRACER_SCREENSHOTS"), reason="TRACER_SCREENSHOTS is not set"
    ),
]


async def _take(page: Page, address: str, ready: Locator, name: str) -> None:
    await page.goto(address)
    await expect(ready).to_be_visible()
    await page.wait_for_load_state("networkidle")
    await page.screenshot(path=IMAGES / f"{name}.png", animations="disabled")


async def test_the_main_views_are_pictured(
    browser: Browser, database_url: str, tmp_path: Path
) -> None:
    runs = [await record_demo(database_url, tmp_path) for _ in range(3)]
    context = await browser.new_context(
        viewport=ViewportSize(width=1280, height=800), locale="en-US", timezone_id="UTC"
    )
    page = await context.new_page()
    with serving_here(database_url, tmp_path) as address:
        last = f"{address}/runs/{runs[-1]}"
        await _take(page, address, page.get_by_role("table"), "list")
        await _take(page, last, page.get_by_role("tree"), "run")
        failed = f"{address}/tools?tool=record_blood_pressure"
        chart = page.get_by_role("img", name="Durations over time")
        await _take(page, failed, chart, "tools")
        compared = f"{address}/compare/{runs[0]}/{runs[-1]}"
        await _take(page, compared, page.get_by_role("treegrid"), "compare")
    await context.close()
