"""Violations that axe, the accessibility checker, finds on a page."""

from __future__ import annotations

from playwright.async_api import Page

from tests.journeys.conftest import ROOT

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"


async def violations(page: Page) -> list[tuple[str, str]]:
    """Return the rules that the page breaks, each with the HTML of the first place."""
    # Evaluated, not added as a script: the page forbids scripts that are not its own.
    await page.evaluate(AXE.read_text(encoding="utf-8"))
    found = await page.evaluate("axe.run().then(result => result.violations)")
    return [(each["id"], each["nodes"][0]["html"]) for each in found]
