"""The viewer in a real browser, through the real API, over a real Postgres."""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import httpx2
import pytest
from playwright.async_api import (
    Browser,
    BrowserContext,
    Page,
    StorageState,
    ViewportSize,
    async_playwright,
    expect,
)

from tests.api.commands import serving_here
from tests.databases import fresh_database
from tests.health.serving import demonstrated, health, served
from tests.otel.sent import traces_of
from tests.projecting import DatabaseProjection, Projection, project
from tests.sample_runs import SampleRun
from tests.trees import complete
from tracer.records import Status
from tracer.records.events import Event
from tracer.records.spans import Span
from tracer.storage.postgres import ProjectPool, open_pool, postgres_writer
from tracer.storage.postgres.rollups import roll_up_runs
from tracer.store import TraceWriter

ROOT = Path(__file__).parents[2]
VIEWPORT = ViewportSize(width=1440, height=900)
# A browser in a test talks to nobody but the server, and root may only start it unconfined.
BROWSER_OPTIONS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--no-first-run",
    *(["--no-sandbox"] if os.geteuid() == 0 else []),
]

# For a machine that is busy with the other tests; what is there is seen at once.
PATIENCE = 180_000
expect.set_options(timeout=PATIENCE)


@dataclass(frozen=True)
class Site:
    """A server with a viewer."""

    address: str
    database_url: str

    async def read(self, path: str) -> dict[str, object]:
        async with httpx2.AsyncClient(base_url=self.address, timeout=60) as client:
            response = await client.get(path)
        assert response.status_code == 200, response.text
        body = response.json()
        assert isinstance(body, dict)
        return complete(body) if path.endswith("/tree") else body


async def record_demo(database_url: str, home: Path) -> str:
    """Record the demonstration run and return its root plan id."""
    async with served(database_url, home, health()) as parts:
        outcome = await demonstrated(parts)
    assert outcome.status is Status.SUCCEEDED, outcome
    return str(outcome.root_plan_id)


@pytest.fixture(scope="session")
def site(
    postgres_server_url: str, _template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """Return a server that all tests share; each test finds its own runs.

    It runs in a thread of this process: a process would spend seconds on imports.
    """
    home = tmp_path_factory.mktemp("tracer")
    with (
        fresh_database(postgres_server_url, _template) as url,
        serving_here(url, home) as address,
    ):
        yield Site(address, url)


@pytest.fixture(scope="session")
async def demo_run(site: Site, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the root plan id of the demonstration run on the site."""
    return await record_demo(site.database_url, tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def empty_site(
    postgres_server_url: str, _template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Return the address of a server without a single run."""
    with (
        fresh_database(postgres_server_url, _template) as url,
        serving_here(url, tmp_path_factory.mktemp("empty")) as address,
    ):
        yield address


@dataclass(frozen=True)
class Records:
    """Writes runs into a site's database, as a recorder elsewhere would."""

    project_pool: ProjectPool
    writer: TraceWriter
    projection: Projection

    async def record_spans(self, spans: Iterable[Span]) -> None:
        answer = await self.writer.write_spans(traces_of(spans))
        assert answer.refused == []
        await self.project()

    async def project(self) -> None:
        """Project all pending runs."""
        await project(self.projection)

    async def write(self, *events: Event) -> None:
        answer = await self.writer.write(events)
        assert answer.refused == []

    async def record(self, run: SampleRun) -> SampleRun:
        await self.write(*run.events)
        await self.roll_up(run.root)
        return run

    async def roll_up(self, run_id: UUID) -> None:
        """Add a run to the statistics of its hours, as the server does within a minute."""
        await roll_up_runs(self.project_pool, [run_id])


@pytest.fixture(scope="session")
async def records(site: Site) -> AsyncIterator[Records]:
    async with open_pool(site.database_url) as pool:
        project_pool = ProjectPool(pool)
        projection = DatabaseProjection(pool.kwargs)
        yield Records(project_pool, postgres_writer(project_pool), projection)


@pytest.fixture(scope="session")
def browser_path() -> str:
    found = subprocess.run(
        [ROOT / "scripts" / "ensure_browser.sh"], check=True, capture_output=True, text=True
    )
    return found.stdout.split("\n")[-2]


@pytest.fixture(scope="session")
async def browser(browser_path: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=browser_path, args=BROWSER_OPTIONS, timeout=2 * PATIENCE
        )
        yield browser
        await browser.close()


@pytest.fixture(scope="session")
async def shared_context(browser: Browser) -> AsyncIterator[BrowserContext]:
    """A context of a reader who prefers English. It keeps a process for pages, and the cache.

    To start both for each test takes longer than most tests.
    """
    context = await browser.new_context(viewport=VIEWPORT, locale="en-US", timezone_id="UTC")
    context.set_default_timeout(PATIENCE)
    await context.new_page()
    yield context
    await context.close()


@pytest.fixture
async def page(shared_context: BrowserContext) -> AsyncIterator[Page]:
    """A page of a reader who prefers English; whatever breaks on it fails the test."""
    page = await shared_context.new_page()
    broken: list[str] = []
    page.on("pageerror", lambda error: broken.append(str(error)))
    page.on("console", lambda message: broken.append(message.text) if _is_ours(message) else None)
    yield page
    await _forget(shared_context)
    assert broken == []


async def _forget(context: BrowserContext) -> None:
    """Close the pages of a test, and remove what they stored."""
    _, *pages = context.pages
    await context.unroute_all()
    await context.clear_permissions()
    await context.set_offline(False)
    for page in pages:
        await page.close()
    await context.set_storage_state(StorageState(cookies=[], origins=[]))


def _is_ours(message: object) -> bool:
    """Whether a console message is an error of the page: a request that failed is no such thing."""
    kind, text = getattr(message, "type", ""), getattr(message, "text", "")
    return kind == "error" and not text.startswith("Failed to load resource")
