"""The viewer's sign-in page, on a server that requires a key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
from playwright.async_api import Browser, Page, expect

from tests.api.commands import serving_here
from tests.databases import fresh_database
from tests.journeys.axe import violations
from tests.sample_runs import sample_run
from tracer.records.access import NewKey, Scope
from tracer.storage.postgres import ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.keys import ApiKeys


@dataclass(frozen=True)
class Closed:
    """A server that wants a key, and a run on it."""

    address: str
    database_url: str
    run: str


@pytest.fixture(scope="module")
def closed(
    postgres_server_url: str, _template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Closed]:
    home = tmp_path_factory.mktemp("closed")
    with fresh_database(postgres_server_url, _template) as url:
        run = asyncio.run(_prepare(url))
        with serving_here(url, home) as address:
            yield Closed(address, url, run)


async def _prepare(url: str) -> str:
    """Make a key, so that one is needed, and return a run."""
    run = sample_run()
    async with open_pool(url) as pool:
        await ApiKeys(ProjectPool(pool)).create("the first", [Scope.ADMIN])
        await postgres_writer(ProjectPool(pool)).write(run.events)
    return str(run.root)


@pytest.fixture(scope="module")
async def keys(closed: Closed) -> AsyncIterator[ApiKeys]:
    async with open_pool(closed.database_url) as pool:
        yield ApiKeys(ProjectPool(pool))


@pytest.fixture
async def key(keys: ApiKeys) -> NewKey:
    return await keys.create("looking", [Scope.READ])


async def test_link_to_a_run_opens_the_run_after_sign_in(
    page: Page, closed: Closed, key: NewKey
) -> None:
    await page.goto(f"{closed.address}/runs/{closed.run}?panes=tree")
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert "/sign-in?to=" in page.url
    await expect(page.get_by_role("navigation")).to_have_count(0)

    await page.get_by_label("Key").fill("tracer_wrong")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("does not exist on this server")
    await expect(page.get_by_label("Key")).to_be_focused()

    await page.get_by_label("Key").fill(key.secret)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("treeitem").first).to_be_visible()
    await expect(page.get_by_role("navigation").first).to_be_visible()
    assert f"/runs/{closed.run}" in page.url
    [cookie] = await page.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    assert cookie["value"] not in key.secret
    kept = "JSON.stringify([document.cookie, {...localStorage}, {...sessionStorage}])"
    for secret in (key.secret, cookie["value"]):
        assert secret not in await page.evaluate(kept)

    await page.get_by_role("button", name="Project:").click()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    await page.goto(f"{closed.address}/")
    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    assert await page.context.cookies() == []


@pytest.mark.thorough
async def test_revoked_key_leads_back_to_the_sign_in_page(
    page: Page, closed: Closed, keys: ApiKeys, key: NewKey
) -> None:
    await page.goto(f"{closed.address}/sign-in")
    await page.get_by_label("Key").fill(key.secret)
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("table").first).to_be_visible()

    await keys.revoke(key.key.key_id)

    await expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


@pytest.mark.parametrize(
    ("scheme", "language"),
    [
        pytest.param("light", "en", marks=pytest.mark.thorough),
        ("dark", "zh-CN"),
        pytest.param("light", "zh-CN", marks=pytest.mark.thorough),
        pytest.param("dark", "en", marks=pytest.mark.thorough),
    ],
)
async def test_sign_in_page_follows_the_content_security_policy_and_axe(
    browser: Browser, closed: Closed, key: NewKey, language: str, scheme: str
) -> None:
    context = await browser.new_context(
        locale=language, color_scheme="dark" if scheme == "dark" else "light"
    )
    page = await context.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    await page.goto(f"{closed.address}/sign-in?to=//elsewhere.example")
    await expect(page.get_by_role("heading", level=1)).to_be_visible()

    assert await violations(page) == []
    assert [each for each in said if "Content Security Policy" in each] == []
    await page.locator("#key").fill(key.secret)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("table").first).to_be_visible()
    assert page.url.startswith(f"{closed.address}/")
    await context.close()
