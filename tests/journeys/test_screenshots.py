"""Screenshots of every page for review (`make screenshots`).

The pictures of the documentation are taken with them, into `docs/images`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import product
from pathlib import Path
from uuid import UUID

import pytest
from playwright.async_api import Browser, Locator, Page, Route, ViewportSize, expect

from tests.api.commands import serving_here
from tests.journeys.conftest import ROOT, record_demo
from tests.projecting import DatabaseProjection
from tests.sample_runs import sample_run
from tests.telling_runs import (
    FailingRun,
    WeekRun,
    deep_run,
    failing_run,
    long_conversation,
    week_run,
)
from tracer.clock import utc_now
from tracer.records import new_id
from tracer.records.access import NewKey, Scope
from tracer.records.events import Event
from tracer.storage.postgres import ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.keys import ApiKeys
from tracer.storage.postgres.rollups import roll_up_runs

IMAGES = ROOT / "docs" / "images"
EVERY_PAGE = ROOT / "screenshots"
HEIGHTS = {1920: 1080, 1440: 900, 1280: 800, 1024: 768, 390: 844}
"""The height of the window for each width."""

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        not os.environ.get("TRACER_SCREENSHOTS"), reason="TRACER_SCREENSHOTS is not set"
    ),
]


every_look = pytest.mark.parametrize(
    ("width", "theme", "language"),
    list(product(HEIGHTS, ("light", "dark"), ("en-US", "zh-CN"))),
)


async def _take(page: Page, address: str, ready: Locator, path: Path) -> None:
    await page.goto(address)
    await expect(ready).to_be_visible()
    await page.wait_for_load_state("networkidle")
    await page.screenshot(path=path, animations="disabled")


async def _record(database_url: str, events: list[Event]) -> str:
    async with open_pool(database_url) as pool:
        project_pool = ProjectPool(pool)
        answer = await postgres_writer(project_pool).write(events)
        assert answer.refused == []
        await roll_up_runs(project_pool, [events[0].root_plan_id])
    return str(events[0].root_plan_id)


async def _record_weeks(database_url: str) -> list[WeekRun]:
    """Record runs of the last days, the latest first; it differs from the others."""
    now = utc_now()
    answer = "Your week was stormy: your pulse was high on three days."
    runs = [week_run(answer, True, 91, session_id="week-42", start=now - timedelta(minutes=9))]
    for number in range(1, 30):
        start = now - timedelta(hours=number * 5 + number % 3, minutes=9)
        runs.append(week_run(is_compact=number % 2 == 0, session_id="week-42", start=start))
    for run in runs:
        await _record(database_url, run.events)
    return runs


@dataclass
class _Look:
    """A page of one size, theme and language, and the folder of its pictures."""

    page: Page
    address: str
    folder: Path

    async def open(self, path: str) -> None:
        await self.page.goto(self.address + path)
        await expect(self.page.get_by_role("heading").first).to_be_visible()

    async def take(self, name: str) -> None:
        await self.page.wait_for_load_state("networkidle")
        await self.shoot(name)

    async def shoot(self, name: str) -> None:
        await self.page.screenshot(path=self.folder / f"{name}.png", animations="disabled")

    async def sign_in(self, key: NewKey) -> None:
        await self.open("/sign-in")
        await self.page.locator("#key").fill(key.secret)
        await self.page.keyboard.press("Enter")
        await expect(self.page.get_by_role("table").first).to_be_visible()


@asynccontextmanager
async def _looking(
    browser: Browser, address: str, width: int, theme: str, language: str
) -> AsyncIterator[_Look]:
    folder = EVERY_PAGE / f"{width}-{theme}-{language}"
    folder.mkdir(parents=True, exist_ok=True)
    is_phone = width == min(HEIGHTS)
    context = await browser.new_context(
        viewport=ViewportSize(width=width, height=HEIGHTS[width]),
        locale=language,
        timezone_id="UTC",
        color_scheme="dark" if theme == "dark" else "light",
        has_touch=is_phone,
        is_mobile=is_phone,
    )
    yield _Look(await context.new_page(), address, folder)
    await context.close()


ARABIC_QUESTION = "لماذا دفعت الفاتورة INV-00042 مرتين؟"
ARABIC_ANSWER = """تم رد المبلغ **129.00 EUR** إلى بطاقتك في 3 نوفمبر.

- الفاتورة `INV-00042` مدفوعة مرة واحدة.
- الدفعة `pay_902` مردودة.

| الدفعة | الحالة |
|---|---|
| pay_881 | محجوزة |
| pay_902 | مردودة |

هل تريد شيئاً آخر؟"""


def _arabic(now: datetime) -> list[WeekRun | FailingRun]:
    """Return a conversation in Arabic; its second turn fails."""
    session = "conv-arabic"
    first, last = (
        week_run(answer, pulse=pulse, question=ARABIC_QUESTION, session_id=session, start=start)
        for answer, pulse, start in (
            ("سأبحث عن الفاتورة INV-00042.", 78, now - timedelta(minutes=40)),
            (ARABIC_ANSWER, 91, now - timedelta(minutes=20)),
        )
    )
    start = now - timedelta(minutes=30)
    return [first, failing_run(start=start, question="هل رُد المبلغ؟", session_id=session), last]


@every_look
async def test_screenshots_of_every_page_are_taken(
    browser: Browser, database_url: str, tmp_path: Path, width: int, theme: str, language: str
) -> None:
    now = utc_now()
    demo = [await record_demo(database_url, tmp_path) for _ in range(2)]
    failed = failing_run(start=now - timedelta(minutes=2))
    talk = long_conversation(start=now - timedelta(minutes=5))
    stuck = sample_run(
        title="Re-index the knowledge base", finished=False, start=now - timedelta(minutes=10)
    )
    live = sample_run(title="Index the shards", finished=False, start=now, recorder=new_id())
    live.events.pop()  # its last sub-agent is still running
    arabic = _arabic(now)
    for each in (failed, talk, stuck, live, *arabic):
        await _record(database_url, each.events)
    deep = await _record(database_url, deep_run(15, start=now - timedelta(hours=3)))
    weeks = await _record_weeks(database_url)
    async with open_pool(database_url) as pool:
        await DatabaseProjection(pool.kwargs).link()
        await roll_up_runs(ProjectPool(pool), [UUID(each) for each in demo])
    week = f"/compare/{weeks[1].root}/{weeks[0].root}"
    run = f"/runs/{failed.root}"
    first, last = arabic[0], arabic[-1]
    assert isinstance(first, WeekRun)
    assert isinstance(last, WeekRun)
    pages = {
        "overview": "/",
        "overview-filtered": "/?last=30d&agent=nurse",
        "list": "/runs",
        "list-filtered": "/runs?status=failed&agent=billing",
        "list-found": "/runs?q=ledger",
        "list-nothing-matches": "/runs?q=nothing-is-called-so",
        "list-arabic": "/runs?session=conv-arabic",
        "conversations": "/sessions",
        "conversations-nothing-matches": "/sessions?subject=nobody",
        "conversation": "/sessions/week-42",
        "conversation-failed": "/sessions/conv-7781",
        "conversation-arabic": "/sessions/conv-arabic",
        "conversation-not-found": "/sessions/no-such-conversation",
        "run-live": f"/runs/{live.root}",
        "run-arabic": f"/runs/{last.root}",
        "run-arabic-answer": f"/runs/{last.root}?select={last.answer}",
        "run-failed": run,
        "run-failed-origin": f"{run}?select={failed.origin}",
        "run-sub-agent": f"{run}?select={failed.ledger_call}",
        "run-all-records": f"{run}?records=all",
        "run-waterfall": f"{run}?waterfall=on",
        "run-deep": f"/runs/{deep}?level=all",
        "run-running": f"/runs/{stuck.root}",
        "run-demo": f"/runs/{demo[0]}",
        "model-call": f"/runs/{talk.root}?select={talk.rounds[11]}",
        "model-answer": f"/runs/{talk.root}?select={talk.rounds[12]}",
        "tools": "/tools?last=all",
        "tools-none": "/tools?to=1990-01-01T00:00:00.000Z",
        "tool": "/tools?tool=ask_doctor&last=7d",
        "tool-failing": "/tools?tool=http_get&last=24h",
        "tool-never-called": "/tools?tool=no-such-tool",
        "compare-picks": f"/compare/{weeks[0].root}",
        "compare-messages": f"{week}?select={weeks[1].answer}",
        "compare-same": f"/compare/{weeks[1].root}/{weeks[2].root}",
        "compare-arabic": f"/compare/{first.root}/{last.root}?select={first.answer}",
        "compare-not-found": f"/compare/{weeks[0].root}/{failed.origin}",
        "compare": f"/compare/{demo[0]}/{demo[1]}",
        "go-not-found": "/go/call_nothing",
        "not-found": "/runs/nonsense",
        "sign-in": "/sign-in",
        "keys-without-keys": "/keys",
    }
    with serving_here(database_url, tmp_path) as address:
        async with _looking(browser, address, width, theme, language) as look:
            for name, path in pages.items():
                await look.open(path)
                await look.take(name)
            page = look.page
            await look.open("/runs")
            await expect(page.get_by_role("table")).to_be_visible()
            for key in "jxjx":
                await page.keyboard.press(key)
            await look.take("list-picked")
            await look.open("/sessions/conv-7781")
            await page.locator(".fold").first.click()
            await expect(page.locator(".tree .row").first).to_be_visible()
            await look.take("conversation-unfolded")


async def _picture_frame(look: _Look, run: str, admin: NewKey, reader: NewKey) -> None:
    """Take pictures of the palette, the help, the project menu, keys, and states of pages."""
    page = look.page
    await look.sign_in(admin)
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("option").first).to_be_visible()
    await look.take("palette")
    for name, text in (("palette-found", "invoice"), ("palette-none", "nothing-is-called-so")):
        await page.get_by_role("combobox").fill(text)
        await expect(page.get_by_role("status").last).not_to_contain_text("…")
        await look.take(name)
    await page.keyboard.press("Escape")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await look.take("key-help")
    await page.keyboard.press("Escape")
    await page.locator("header button:has(.project)").click()
    await expect(page.locator(".popover")).to_be_visible()
    await look.take("project-menu")
    await look.open("/keys")
    await expect(page.get_by_role("table")).to_be_visible()
    await look.take("keys")
    await page.locator("form input").first.fill("night")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog").locator("code")).to_be_visible()
    await look.take("key-created")
    await page.keyboard.press("Escape")
    await page.get_by_role("table").get_by_role("button").first.click()
    await look.take("key-revoked")
    await page.keyboard.press("Escape")
    await look.open("/sign-in?change=project")
    await look.take("change-project")

    await look.sign_in(reader)
    await look.open("/keys")
    await look.take("state-no-permission")
    await page.route("**/api/**", lambda route: route.abort())
    for name, path in (
        ("list", "/runs"),
        ("run", f"/runs/{run}"),
        ("tools", "/tools"),
        ("compare", f"/compare/{run}/{run}"),
    ):
        await page.goto(look.address + path)
        await expect(page.get_by_role("alert")).to_be_visible()
        await look.shoot(f"state-away-{name}")
    await page.unroute_all(behavior="ignoreErrors")
    await _picture_answers(look, run)
    # An answer that does not come: what is shown meanwhile.
    await page.route("**/api/runs**", lambda _: None)
    await page.goto(f"{look.address}/runs")
    await expect(page.locator(".skeleton")).to_be_visible()
    await look.shoot("state-loading-list")


async def _picture_answers(look: _Look, run: str) -> None:
    """Take pictures of answers that a small server does not give: they are made up here."""
    page = look.page

    async def not_allowed(route: Route) -> None:
        problem = {"detail": "This key lacks the read scope.", "code": "not_allowed"}
        await route.fulfill(status=403, json=problem)

    await page.route("**/api/runs**", not_allowed)
    await page.goto(f"{look.address}/runs")
    await expect(page.get_by_role("alert")).to_be_visible()
    await look.take("state-not-allowed-list")
    await page.unroute_all(behavior="ignoreErrors")

    answer = await (await page.request.get(f"{look.address}/api/runs/{run}")).json()
    behind = {"spans": 250_000, "since": answer["recordedAt"]}
    error = (
        "The trace has 250000 spans. Traces with more than 200000 spans are not turned into "
        "records."
    )

    async def too_large(route: Route) -> None:
        await route.fulfill(json={**answer, "projectionError": error, "behind": behind})

    await page.route(f"**/api/runs/{run}", too_large)
    await page.route("**/api/plans/**", lambda route: route.fulfill(status=404, json={}))
    await page.goto(f"{look.address}/runs/{run}")
    # The page reads such a run again and again: the network does not become idle.
    await expect(page.get_by_text(error)).to_be_visible()
    await look.shoot("state-too-large-run")
    await page.unroute_all(behavior="ignoreErrors")


@every_look
async def test_screenshots_of_the_shell_and_of_page_states_are_taken(
    browser: Browser, database_url: str, tmp_path: Path, width: int, theme: str, language: str
) -> None:
    failed = failing_run(start=utc_now() - timedelta(minutes=2))
    run = await _record(database_url, failed.events)
    async with open_pool(database_url) as pool:
        keys = ApiKeys(ProjectPool(pool))
        admin = await keys.create("maria's laptop", [Scope.ADMIN])
        reader = await keys.create("dashboard", [Scope.READ])
    with serving_here(database_url, tmp_path) as address:
        async with _looking(browser, address, width, theme, language) as look:
            await _picture_frame(look, run, admin, reader)


async def test_screenshots_for_the_documentation_are_taken(
    browser: Browser, database_url: str, tmp_path: Path
) -> None:
    now = utc_now()
    for _ in range(3):
        await record_demo(database_url, tmp_path)
    weeks = await _record_weeks(database_url)
    failed = failing_run(start=now - timedelta(minutes=2))
    talk = long_conversation(start=now - timedelta(minutes=5))
    for events in (failed.events, talk.events):
        await _record(database_url, events)
    context = await browser.new_context(
        viewport=ViewportSize(width=1280, height=800), locale="en-US", timezone_id="UTC"
    )
    page = await context.new_page()
    with serving_here(database_url, tmp_path) as address:
        table, tree = page.get_by_role("table"), page.get_by_role("tree")
        await _take(page, f"{address}/runs", table, IMAGES / "list.png")
        selected = f"{address}/runs/{failed.root}?select={failed.origin}"
        await _take(page, selected, tree, IMAGES / "run.png")
        round_ = f"{address}/runs/{talk.root}?select={talk.rounds[12]}"
        await _take(page, round_, tree, IMAGES / "model-call.png")
        tool = f"{address}/tools?tool=ask_doctor&last=7d"
        chart = page.get_by_role("img", name="Durations over time")
        await _take(page, tool, chart, IMAGES / "tools.png")
        left, right = weeks[1], weeks[0]
        compared = f"{address}/compare/{left.root}/{right.root}?select={left.answer}"
        await _take(page, compared, page.get_by_role("treegrid"), IMAGES / "compare.png")
    await context.close()
