"""The viewer's frame: command palette, shortcuts, project, API keys, and the layout for phones."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from uuid import UUID

import pytest
from playwright.async_api import Browser, Locator, Page, ViewportSize, expect

from api.commands.database import key_ring
from tests.api.commands import serving_here
from tests.databases import fresh_database
from tests.journeys.axe import violations
from tests.journeys.conftest import Records, Site
from tests.journeys.tree_page import details, expect_focus, open_run, row, search_field, selected
from tests.sample_runs import sample_run
from tests.telling_runs import FailingRun, deep_run, failing_run
from tracer.clock import utc_now
from tracer.records.access import NewKey, Scope
from tracer.storage.postgres import ProjectPool, open_pool, postgres_writer

LOOKS = [
    ("dark", "zh-CN"),
    pytest.param("light", "en", marks=pytest.mark.thorough),
    pytest.param("light", "zh-CN", marks=pytest.mark.thorough),
    pytest.param("dark", "en", marks=pytest.mark.thorough),
]
"""Themes and languages; the quick profile takes one of four pairs."""

PHONE = ViewportSize(width=390, height=844)


@dataclass(frozen=True)
class Guarded:
    """A server that needs keys, with keys of several scopes and of two projects."""

    address: str
    run: UUID
    keys: dict[str, NewKey]


@pytest.fixture(scope="module")
def guarded(
    postgres_server_url: str, _template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    home = tmp_path_factory.mktemp("guarded")
    with fresh_database(postgres_server_url, _template) as url:
        run, keys = asyncio.run(_prepare(url))
        with serving_here(url, home) as address:
            yield Guarded(address, run, keys)


async def _prepare(url: str) -> tuple[UUID, dict[str, NewKey]]:
    run = sample_run(title="Run of the default project")
    async with key_ring(url) as ring:
        ours, theirs = await ring.made("default"), await ring.made("ward")
        keys = {
            "admin": await ours.create("maria", [Scope.ADMIN]),
            "read": await ours.create("dashboard", [Scope.READ]),
            "record": await ours.create("agent", [Scope.RECORD]),
            "other": await theirs.create("nurse", [Scope.READ]),
        }
    async with open_pool(url) as pool:
        await postgres_writer(ProjectPool(pool)).write(run.events)
    return run.root, keys


async def _sign_in(page: Page, guarded: Guarded, name: str, path: str = "/runs") -> None:
    await page.goto(f"{guarded.address}/sign-in?to={path}")
    await page.locator("#key").fill(guarded.keys[name].secret)
    await page.keyboard.press("Enter")
    await expect(_project(page)).to_be_visible()


def _project(page: Page) -> Locator:
    return page.get_by_role("button", name=re.compile("^(Project: |项目：)"))


def _palette(page: Page) -> Locator:
    return page.get_by_role("dialog", name=re.compile("Search and commands|搜索与命令"))


def _option(page: Page, name: str) -> Locator:
    return _palette(page).get_by_role("option", name=name)


async def _find(page: Page, text: str) -> None:
    # The page handles keys once its header is there.
    await expect(page.get_by_role("banner")).to_be_visible()
    await page.keyboard.press("Control+k")
    await expect(_palette(page).get_by_role("combobox")).to_be_focused()
    await page.keyboard.type(text)


async def _failing(records: Records) -> FailingRun:
    run = failing_run(start=utc_now())
    await records.write(*run.events)
    await records.roll_up(run.root)
    return run


async def test_palette_opens_a_run_by_words_of_its_question(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run(title="Seven otters in the harbour", start=utc_now()))
    await page.goto(f"{site.address}/tools")
    await expect(page.get_by_role("heading", level=1)).to_be_visible()

    await _find(page, "otters")
    await expect(_option(page, "Seven otters in the harbour").first).to_be_visible()
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/runs/{run.root}*")


async def test_palette_loses_no_key_that_is_pressed_while_it_opens(
    page: Page, site: Site, records: Records
) -> None:
    await page.goto(f"{site.address}/runs")
    await expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()
    # Twice: the second time its code is loaded, and it opens within a few frames.
    for _ in range(2):
        await page.keyboard.press("Control+k")
        await page.keyboard.type("refund of INV-00042")
        await expect(_palette(page).get_by_role("combobox")).to_have_value("refund of INV-00042")
        await page.keyboard.press("Escape")
        await expect(_palette(page)).to_have_count(0)


async def test_palette_finds_a_run_and_a_tool_call_by_id(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run(title="Found by its id"))
    await page.goto(f"{site.address}/runs")

    await _find(page, str(run.root))
    await expect(_option(page, "Found by its id").first).to_be_visible()
    await page.get_by_role("combobox").fill(str(run.failed_call))
    # A record is named with its run.
    await expect(_option(page, "measure Found by its id").first).to_be_visible()
    await page.keyboard.press("Enter")
    await expect(row(page, run.failed_call)).to_be_visible()


@pytest.mark.thorough
async def test_palette_finds_agents_and_tools(page: Page, site: Site, records: Records) -> None:
    await _failing(records)
    await page.goto(f"{site.address}/runs")

    await _find(page, "billing")
    await _option(page, "billing Its runs").click()
    await page.wait_for_url("**/runs?agent=billing")
    await _find(page, "http_get")
    await _option(page, "http_get").last.click()
    await page.wait_for_url("**/tools?*tool=http_get*")


async def test_palette_runs_a_command_and_restores_the_focus(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root)
    await row(page, run.root).focus()

    await page.keyboard.press("Control+k")
    await expect(_palette(page).get_by_role("combobox")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect_focus(page, run.root)
    await _find(page, "search this page")
    await page.keyboard.press("Enter")
    await expect(search_field(page)).to_be_focused()
    await _find(page, "next failure")
    await page.keyboard.press("Enter")
    await expect(selected(page)).to_have_attribute("data-key", str(run.failed_call))
    await _find(page, "change the theme")
    await page.keyboard.press("Enter")
    await expect(page.locator("html")).to_have_attribute("data-theme", "light")


@pytest.mark.thorough
async def test_palette_says_that_nothing_matches(page: Page, site: Site) -> None:
    # On a phone the palette is as high as the screen.
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.goto(f"{site.address}/runs")
    await _find(page, "nothing-is-called-so")
    sentence = _palette(page).get_by_text("Nothing matches “nothing-is-called-so”")
    await expect(sentence).to_be_visible()
    box = await sentence.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] < 200, box


async def test_keys_j_and_k_move_through_the_rows_of_list_and_tree(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run(title="First row of its list", start=utc_now()))
    await page.goto(f"{site.address}/runs?q=First+row+of+its+list")
    await expect(page.get_by_role("link", name="First row of its list").first).to_be_visible()

    await page.keyboard.press("j")
    await expect(page.locator("tbody tr a").first).to_be_focused()
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/runs/{run.root}*")
    await expect(page.get_by_role("treeitem").first).to_be_visible()
    await page.keyboard.press("j")
    second = page.get_by_role("treeitem").nth(1)
    await expect(second).to_be_focused()
    await expect(second).to_have_attribute("aria-selected", "true")
    await page.keyboard.press("k")
    await expect_focus(page, run.root)


@pytest.mark.thorough
async def test_shortcuts_do_nothing_with_a_modifier_or_in_a_field(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root)
    for chord in ("Control+j", "Alt+n", "Meta+n"):
        await page.keyboard.press(chord)
    await page.keyboard.press("/")
    await page.keyboard.type("jkny?e")

    await expect(search_field(page)).to_have_value("jkny?e")
    await expect(selected(page)).to_have_attribute("data-key", str(run.root))
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_key_e_downloads_the_export_of_the_run(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root)

    async with page.expect_download() as waiting:
        await page.keyboard.press("e")
    download = await waiting.value
    assert str(run.root) in download.url


async def test_actions_that_need_admin_are_hidden_from_a_read_key(
    page: Page, guarded: Guarded
) -> None:
    await _sign_in(page, guarded, "read")
    await _project(page).click()
    menu = page.get_by_role("dialog", name="Project: default")
    await expect(menu).to_contain_text("dashboard")
    await expect(menu.get_by_role("link", name="API keys")).to_have_count(0)
    await page.keyboard.press("Escape")
    await _find(page, "go to")
    await expect(_option(page, "Go to the tools")).to_be_visible()
    await expect(_option(page, "Go to the API keys")).to_have_count(0)

    await page.goto(f"{guarded.address}/runs/{guarded.run}")
    await page.get_by_role("button", name="More actions").click()
    await expect(page.get_by_role("link", name="Export as JSON lines")).to_be_visible()
    await expect(page.get_by_role("button", name="Delete the run")).to_have_count(0)

    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    await page.goto(f"{guarded.address}/keys")
    await expect(page.get_by_text("The key “dashboard” lacks the admin scope")).to_be_visible()
    assert not any(url.endswith("/api/keys") for url in requests)
    await page.get_by_role("button", name="Sign in with another key").click()
    await expect(page.get_by_role("heading", name="Change the project")).to_be_visible()


async def test_key_with_only_record_scope_cannot_sign_in(page: Page, guarded: Guarded) -> None:
    await page.goto(f"{guarded.address}/sign-in")
    await page.locator("#key").fill(guarded.keys["record"].secret)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_contain_text("lacks the read scope")


async def test_admin_creates_a_key_that_works_until_it_is_revoked(
    page: Page, guarded: Guarded, browser: Browser
) -> None:
    year = utc_now().year
    await _sign_in(page, guarded, "admin", "/keys")
    await page.get_by_label("Name").fill("browser of Li")
    await page.get_by_role("checkbox", name="record").uncheck()
    await expect(page.get_by_role("button", name="Create a key")).to_be_disabled()
    await page.get_by_role("checkbox", name="read").check()
    await page.get_by_role("button", name="Create a key").click()
    made = page.get_by_role("dialog", name="The key “browser of Li” was created")
    secret = await made.locator("code").inner_text()
    assert secret.startswith("tracer_")
    await expect(made.get_by_role("button", name="Copy")).to_be_focused()
    await made.get_by_role("button", name="Done").click()
    await expect(page.get_by_text(secret)).to_have_count(0)
    row = page.get_by_role("row", name="browser of Li")
    await expect(row).to_contain_text(re.compile(f"{year}|{utc_now().year}"))

    other = await (await browser.new_context()).new_page()
    await other.goto(f"{guarded.address}/sign-in")
    await other.locator("#key").fill(secret)
    await other.keyboard.press("Enter")
    await expect(other.get_by_role("table").first).to_be_visible()

    await page.get_by_role("button", name="Revoke the key “browser of Li”").click()
    ask = page.get_by_role("dialog", name="Revoke the key “browser of Li”")
    await expect(ask).not_to_contain_text("signed out")
    await ask.get_by_role("button", name="Revoke").click()
    await expect(page.get_by_role("row", name="browser of Li")).to_have_count(0)
    await page.get_by_role("checkbox", name="Show 1 revoked key").check()
    await expect(page.get_by_role("row", name="browser of Li")).to_contain_text("Revoked")
    await expect(other.locator("#key")).to_be_visible()
    await other.context.close()


async def test_signing_in_with_a_key_of_another_project_changes_the_project(
    page: Page, guarded: Guarded
) -> None:
    await _sign_in(page, guarded, "read")
    await expect(page.get_by_text("Run of the default project")).to_be_visible()
    await _project(page).click()
    await page.get_by_role("button", name="Change the project…").click()
    await expect(page.get_by_text("You are signed in to the project “default”.")).to_be_visible()

    await page.locator("#key").fill(guarded.keys["other"].secret)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Project: ward")).to_be_visible()
    await expect(page.get_by_text("Run of the default project")).to_have_count(0)
    await page.goto(f"{guarded.address}/runs/{guarded.run}")
    await expect(page.get_by_role("heading", name="Not found")).to_be_visible()


async def test_open_server_says_that_it_needs_no_key(page: Page, site: Site) -> None:
    await page.goto(f"{site.address}/keys")
    await expect(page.get_by_text("This server has no keys yet")).to_be_visible()
    await _project(page).click()
    await expect(page.get_by_text("This server needs no key")).to_be_visible()
    await expect(page.get_by_role("button", name="Sign out")).to_have_count(0)


async def test_sign_in_page_has_a_primary_action_and_explains_keys(
    page: Page, guarded: Guarded
) -> None:
    await page.goto(f"{guarded.address}/sign-in")
    await expect(page.get_by_role("button", name="Sign in")).to_have_class(re.compile("primary"))
    await expect(page.get_by_text("Where does a key come from?")).to_be_visible()
    await expect(page.locator("pre")).to_contain_text("tracer keys create")


@pytest.mark.thorough
async def test_key_is_created_and_revoked_by_keyboard_alone(page: Page, guarded: Guarded) -> None:
    await _sign_in(page, guarded, "admin")
    await _find(page, "go to the api keys")
    await page.keyboard.press("Enter")
    await expect(page.get_by_label("Name")).to_be_visible()
    await _tab_to(page, page.get_by_label("Name"))
    await page.keyboard.type("by keyboard")
    await page.keyboard.press("Enter")
    made = page.get_by_role("dialog", name="The key “by keyboard” was created")
    await expect(made).to_be_visible()
    await page.keyboard.press("Escape")
    revoke = page.get_by_role("button", name="Revoke the key “by keyboard”")
    await expect(revoke).to_be_visible()
    await _tab_to(page, revoke)
    await page.keyboard.press("Enter")
    ask = page.get_by_role("dialog", name="Revoke the key “by keyboard”")
    await _tab_to(page, ask.get_by_role("button", name="Revoke"))
    await page.keyboard.press("Enter")
    await expect(revoke).to_have_count(0)


async def _tab_to(page: Page, locator: Locator) -> None:
    for _ in range(60):
        if await locator.evaluate("element => element === document.activeElement"):
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"The Tab key does not reach {locator}")


@pytest.mark.parametrize(("scheme", "language"), LOOKS)
async def test_axe_finds_no_violation_in_the_shell(
    browser: Browser, guarded: Guarded, scheme: str, language: str
) -> None:
    context = await browser.new_context(
        locale=language, color_scheme="dark" if scheme == "dark" else "light"
    )
    page = await context.new_page()
    await page.goto(f"{guarded.address}/sign-in")
    await expect(page.locator("#key")).to_be_focused()
    assert await violations(page) == []
    await _sign_in(page, guarded, "admin", "/keys")
    await expect(page.get_by_role("table").first).to_be_visible()
    assert await violations(page) == []
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("option").first).to_be_visible()
    assert await violations(page) == []
    await page.keyboard.press("Escape")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_be_visible()
    assert await violations(page) == []
    await page.keyboard.press("Escape")
    await _project(page).click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    assert await violations(page) == []
    await context.close()


@pytest.fixture
async def phone(browser: Browser) -> AsyncIterator[Page]:
    context = await browser.new_context(
        viewport=PHONE, has_touch=True, is_mobile=True, locale="en-US", timezone_id="UTC"
    )
    yield await context.new_page()
    await context.close()


SMALL_TARGETS = """() => {
    const shown = (element) => element.checkVisibility({visibilityProperty: true})
    const size = (element) => {
        const label = element.closest('label')
        const box = (label ?? element).getBoundingClientRect()
        return Math.min(box.width, box.height)
    }
    return [...document.querySelectorAll('button, select, input, [role="treeitem"], header a')]
        .filter((element) => shown(element) && size(element) > 1 && size(element) < 43.5)
        .filter((element) => !element.matches('.link, .arrow, thead *, [tabindex="-1"]'))
        .map((element) => element.outerHTML.replace(/data-v-\\w+="" /g, '').slice(0, 160))
}"""
"""The controls that are too small for a finger, except in texts, JSON and hidden headings."""


async def _expect_fit(page: Page) -> None:
    assert await page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    small = await page.evaluate(SMALL_TARGETS)
    assert small == [], "\n".join(small)


async def test_phone_shows_list_tree_and_details_one_at_a_time(
    phone: Page, site: Site, records: Records
) -> None:
    run = await _failing(records)
    await phone.goto(f"{site.address}/runs?agent=billing")
    link = phone.locator(f'a[href*="{run.root}"]').first
    await expect(link).to_be_visible()
    await _expect_fit(phone)
    await link.tap()
    await expect(row(phone, run.root)).to_be_visible()
    await expect(details(phone)).to_be_hidden()
    await _expect_fit(phone)

    await row(phone, run.ledger_call).tap()
    await expect(details(phone)).to_be_visible()
    await expect(phone.get_by_role("tree")).to_be_hidden()
    await _expect_fit(phone)
    await phone.get_by_role("button", name="Back to the tree").tap()
    await expect(phone.get_by_role("tree")).to_be_visible()
    await phone.get_by_role("button", name="Go to it").tap()
    await expect(details(phone).get_by_role("heading", name="http_get")).to_be_visible()


@pytest.mark.thorough
async def test_phone_goes_back_from_details_to_the_tree(
    phone: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(phone, site.address, run.root)
    await row(phone, run.failed_call).tap()
    await expect(details(phone)).to_be_visible()
    await phone.wait_for_url("**select=*")
    await phone.go_back()
    await expect(phone.get_by_role("tree")).to_be_visible()


@pytest.mark.thorough
async def test_phone_header_of_a_run_is_one_line_that_expands(
    phone: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(phone, site.address, run.root)
    header = phone.locator(".run-header")
    box = await header.bounding_box()
    assert box is not None
    assert box["height"] <= 56
    await phone.get_by_role("button", name="Summary of the run").tap()
    await expect(header.get_by_text("Tokens")).to_be_visible()


async def test_phone_has_all_filters_behind_one_button(
    phone: Page, site: Site, records: Records
) -> None:
    await records.record(sample_run())
    await phone.goto(f"{site.address}/runs")
    await expect(phone.get_by_role("table")).to_be_visible()
    status = phone.get_by_role("combobox", name="Status")
    await expect(status).to_be_hidden()
    await phone.get_by_role("button", name="Show or hide the filters").tap()
    await status.select_option("failed")
    await phone.wait_for_url("**status=failed*")
    await _expect_fit(phone)


@pytest.mark.thorough
async def test_phone_sorts_the_list(phone: Page, site: Site, records: Records) -> None:
    short = await records.record(sample_run(sub_plans=0, title="Handy short"))
    long = await records.record(sample_run(sub_plans=3, title="Handy long"))
    await phone.goto(f"{site.address}/runs?q=Handy")
    order = phone.get_by_role("combobox", name="Order")
    await expect(order).to_be_hidden()
    await phone.get_by_role("button", name="Show or hide the filters").tap()
    for choice, first in (("Tool calls: lowest first", short), ("Tool calls: highest first", long)):
        await order.select_option(choice)
        await expect(phone.locator("tbody a").first).to_have_attribute(
            "href", f"/runs/{first.root}"
        )
    await phone.wait_for_url("**sort=-toolCalls*")
    await _expect_fit(phone)


@pytest.mark.thorough
async def test_phone_shows_names_at_any_depth(phone: Page, site: Site, records: Records) -> None:
    events = deep_run(15, start=utc_now())
    await records.write(*events)
    await phone.goto(f"{site.address}/runs/{events[0].root_plan_id}?level=all")
    await expect(phone.get_by_role("treeitem").nth(11)).to_be_visible()
    widths = await phone.locator('[role="treeitem"] .name').evaluate_all(
        "names => names.map(name => name.clientWidth / Math.min(name.scrollWidth, 120))"
    )
    assert min(widths) >= 0.99
