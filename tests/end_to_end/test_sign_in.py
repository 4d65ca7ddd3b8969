"""Signing in to a server that wants a key, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from playwright.async_api import Browser, Page, expect

from tests.api.test_cli import tracer
from tests.end_to_end.axe import violations
from tests.end_to_end.conftest import record_demo
from tests.servers import tracer_server


@pytest.fixture
def closed(database_url: str, tmp_path: Path) -> Iterator[tuple[str, str, str]]:
    """A server that wants a key: its address, a key, and the id of a run."""
    run = record_demo(database_url, tmp_path)
    make = ("keys", "create", "looking", "--scope", "read")
    key = tracer(tmp_path, *make, TRACER_DATABASE_URL=database_url).stdout.strip()
    with tracer_server(database_url, tmp_path) as address:
        yield address, key, run


async def test_a_link_leads_to_the_sign_in_and_back_and_out_again(
    page: Page, closed: tuple[str, str, str]
) -> None:
    address, key, run = closed
    await page.goto(f"{address}/runs/{run}?panes=tree")
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert "/sign-in?to=" in page.url

    await page.get_by_label("Key").fill("tracer_wrong")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("not known")
    await expect(page.get_by_label("Key")).to_be_focused()

    await page.get_by_label("Key").fill(key)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("treeitem").first).to_be_visible()
    assert f"/runs/{run}" in page.url
    [cookie] = await page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert cookie["value"] not in key
    kept = "JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}])"
    for secret in (key, cookie["value"]):
        assert secret not in await page.evaluate(kept)

    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    await page.goto(f"{address}/")
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert await page.context.cookies() == []


async def test_a_revoked_key_leads_who_looks_back_to_the_sign_in(
    page: Page, closed: tuple[str, str, str], database_url: str
) -> None:
    address, key, _ = closed
    await page.goto(f"{address}/sign-in")
    await page.get_by_label("Key").fill(key)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("table")).to_be_visible()

    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE api_key SET revoked_at = now()")

    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


@pytest.mark.parametrize("language", ["en", "zh-CN"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_page_keeps_the_policy_and_is_accessible(
    browser: Browser, closed: tuple[str, str, str], language: str, scheme: str
) -> None:
    context = await browser.new_context(
        locale=language, color_scheme="dark" if scheme == "dark" else "light"
    )
    page = await context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    await page.goto(f"{closed[0]}/sign-in?to=//elsewhere.example")
    await expect(page.get_by_role("heading", level=1)).to_be_visible()

    assert await violations(page) == []
    assert [each for each in said if "Content Security Policy" in each] == []
    await page.locator("#key").fill(closed[1])
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("table")).to_be_visible()
    assert page.url.startswith(f"{closed[0]}/")
    await context.close()
