"""The run page as a test reads it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode, urlsplit

from playwright.async_api import FloatRect, Locator, Page, expect

ROW_HEIGHT = 28


@dataclass(frozen=True)
class Row:
    """A row of the tree that is in the page."""

    key: str
    level: int
    expanded: bool | None
    """None where nothing is below it."""
    text: str


async def open_run(
    page: Page,
    address: str,
    root_plan_id: object,
    select: object = None,
    *,
    all_records: bool = True,
) -> None:
    """Open a run's page and wait until its tree can be used.

    Args:
        page: The page.
        address: The server's address.
        root_plan_id: The run.
        select: The key of the record to select.
        all_records: Whether each record has a row; otherwise rows are merged, as by default.
    """
    query = {"records": "all"} if all_records else {}
    if select is not None:
        query["select"] = str(select)
    await page.goto(f"{address}/runs/{root_plan_id}?{urlencode(query)}")
    await expect(page.get_by_role("treeitem").first).to_be_visible()


async def rows(page: Page) -> list[Row]:
    """Return the rows that are in the page, from top to bottom."""
    found = await page.get_by_role("treeitem").evaluate_all(
        """items => items.map(item => [
            item.dataset.key, item.ariaLevel, item.ariaExpanded, item.textContent,
            item.getBoundingClientRect().top,
        ]).sort((one, other) => one[4] - other[4])"""
    )
    return [
        Row(key, int(level), None if expanded is None else expanded == "true", text)
        for key, level, expanded, text, _ in found
    ]


def row(page: Page, key: object) -> Locator:
    """Return the row of one record."""
    return page.locator(f'[role="treeitem"][data-key="{key}"]')


def selected(page: Page) -> Locator:
    """Return the selected row."""
    return page.locator('[role="treeitem"][aria-selected="true"]')


def details(page: Page) -> Locator:
    """Return the details of the selected record."""
    return page.get_by_role("region", name="Details", exact=True)


async def focused_key(page: Page) -> str | None:
    """Return the key of the row that has the keyboard."""
    key = await page.evaluate("document.activeElement.dataset.key ?? null")
    return None if key is None else str(key)


async def expect_focus(page: Page, key: object) -> None:
    """Wait until the keyboard is on a row."""
    await expect(row(page, key)).to_be_focused()


def bar(page: Page, key: object) -> Locator:
    """Return the bar of one record in the waterfall."""
    return row(page, key).locator(".bar")


async def settled_box(locator: Locator) -> FloatRect:
    """Return where something is on the screen, once it moves no more."""
    handle = await locator.element_handle()
    await handle.wait_for_element_state("stable")
    box = await handle.bounding_box()
    assert box is not None
    return box


async def extent(page: Page, key: object) -> tuple[float, float]:
    """Return from where to where a record's bar reaches, in pixels."""
    box = await settled_box(bar(page, key))
    return box["x"], box["x"] + box["width"]


def search_field(page: Page) -> Locator:
    """Return the field that searches the run."""
    return page.get_by_role("searchbox", name="Search in this run")


def query_of(page: Page) -> dict[str, str]:
    """Return what the page's address says besides its path."""
    return dict(parse_qsl(urlsplit(page.url).query))


async def expect_query(page: Page, *named: str, **wanted: str | None) -> None:
    """Wait until the address says this; None is for what it must not name.

    Args:
        page: The page.
        named: What it must name, whatever the value.
        wanted: What it must say.
    """

    def says(url: str) -> bool:
        query = dict(parse_qsl(urlsplit(url).query))
        said = all(query.get(name) == value for name, value in wanted.items())
        return said and all(name in query for name in named)

    await page.wait_for_url(says)
