"""Filters, sorting and scrolling of the viewer's list of runs."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import Locator, Page, expect

from tests.journeys.conftest import Records, Site
from tests.journeys.tree_page import expect_query, settled_box
from tests.sample_runs import START, SampleRun, sample_run
from tracer.clock import utc_now
from tracer.records import new_id
from tracer.records.events import PlanStarted


def _run(page: Page, run: SampleRun) -> Locator:
    """Return the link that leads to a listed run."""
    return page.locator(f'a[href="/runs/{run.root}"]')


async def _height(page: Page, run: SampleRun) -> float:
    """Return how far down on the screen a run is."""
    return (await settled_box(_run(page, run)))["y"]


async def _open(page: Page, address: str, query: str = "") -> None:
    await page.goto(f"{address}/runs{query}")
    await expect(page.get_by_role("heading", name="Runs", exact=True)).to_be_visible()


async def _more(page: Page) -> Locator:
    """Open the fields of the less frequent filters."""
    await page.get_by_role("button", name="More filters").click()
    return page.get_by_role("dialog", name="More filters")


async def test_filters_narrow_the_list_and_are_in_the_link(
    page: Page, site: Site, records: Records
) -> None:
    done = await records.record(sample_run(title="Filtered harvest"))
    open_run = await records.record(sample_run(title="Filtered harvest", finished=False))
    other = await records.record(sample_run(title="Filtered sowing"))
    await _open(page, site.address)

    await page.get_by_role("searchbox", name="Search").fill("harvest")
    await expect(_run(page, other)).to_have_count(0)
    await expect(_run(page, done)).to_be_visible()
    await page.get_by_role("combobox", name="Status").select_option("running")
    await expect(_run(page, done)).to_have_count(0)
    await expect(_run(page, open_run)).to_be_visible()
    await expect_query(page, q="harvest", status="running")

    await page.reload()
    await expect(_run(page, open_run)).to_be_visible()
    await expect(page.get_by_role("row")).to_have_count(2)
    await page.go_back()
    await expect(_run(page, done)).to_be_visible()
    await expect(page.get_by_role("combobox", name="Status")).to_have_value("")


@pytest.mark.thorough
async def test_runs_are_found_by_agent_tool_and_time(
    page: Page, site: Site, records: Records
) -> None:
    old = await records.record(sample_run(title="Timely old"))
    new = await records.record(sample_run(title="Timely new", start=utc_now()))
    await _open(page, site.address, "?q=Timely&agent=pharmacist&tool=measure")
    await expect(_run(page, old)).to_be_visible()
    await expect(_run(page, new)).to_be_visible()

    await page.get_by_role("combobox", name="Time").select_option("24h")
    await expect(_run(page, old)).to_have_count(0)
    await expect(_run(page, new)).to_be_visible()
    await page.get_by_role("combobox", name="Time").select_option("between")
    await page.get_by_label("To", exact=True).fill("2026-01-02T00:00")
    await expect(_run(page, new)).to_have_count(0)
    await expect(_run(page, old)).to_be_visible()
    await expect_query(page, to="2026-01-02T00:00:00.000Z", last=None)
    fields = await _more(page)
    await fields.get_by_label("Agent").fill("nobody")
    await expect(_run(page, old)).to_have_count(0)


@pytest.mark.thorough
async def test_reversed_time_range_is_reported(page: Page, site: Site, records: Records) -> None:
    run = await records.record(sample_run(title="Between nothing"))
    backwards = "from=2026-01-02T00:00:00Z&to=2025-12-31T00:00:00Z"
    for path in (f"/?q=Between&{backwards}", f"/tools?tool=measure&{backwards}"):
        await page.goto(site.address + path)
        said = page.get_by_role("alert")
        await expect(said).to_have_text("“From” is later than “To”.")
        await expect(page.get_by_label("To", exact=True)).to_have_attribute("aria-invalid", "true")
        await expect(page.get_by_role("button", name="Try again")).to_have_count(0)
    await page.go_back()
    await expect(page.get_by_text("No run matches")).to_be_visible()

    await page.get_by_label("To", exact=True).fill("2026-01-03T00:00")
    await expect(said).to_have_count(0)
    await page.get_by_label("From", exact=True).fill("2026-01-01T00:00")
    await expect(_run(page, run)).to_be_visible()


@pytest.mark.thorough
async def test_resetting_filters_clears_the_time_range_and_preserves_focus(
    page: Page, site: Site, records: Records
) -> None:
    await records.record(sample_run())
    # The button is in the form, or below the sentence if no run matches.
    for query, content in (
        ("?from=2026-01-01T00:00:00Z", page.get_by_role("table")),
        ("?q=Nothing-is-called-so", page.get_by_text("No run matches")),
    ):
        await _open(page, site.address, query)
        await expect(content).to_be_visible()
        reset = page.get_by_role("button", name="Reset the filters")
        await reset.focus()
        await page.keyboard.press("Enter")
        await expect(reset).to_have_count(0)
        await expect(page.get_by_role("combobox", name="Time")).to_have_value("all")
        assert await page.evaluate("document.activeElement !== document.body"), query


@pytest.mark.thorough
async def test_runs_are_found_by_session_subject_tag_and_service(
    page: Page, site: Site, records: Records
) -> None:
    ids = []
    for number in range(2):
        root = new_id()
        started = PlanStarted(
            at=START,
            root_plan_id=root,
            plan_id=root,
            session_id="shift-1",
            subject=f"p-{number}",
            tags=("late",) * number,
            service_name=f"ward {number}",
            deployment_environment="production",
        )
        await records.write(started)
        ids.append(root)
    first, second = (page.locator(f'a[href="/runs/{root}"]') for root in ids)
    await _open(page, site.address)

    fields = await _more(page)
    await fields.get_by_label("Session").fill("shift-1")
    await expect(page.get_by_role("row")).to_have_count(3)
    await fields.get_by_label("User").fill("p-0")
    await expect(second).to_have_count(0)
    await expect(first).to_be_visible()
    await fields.get_by_label("User").fill("")
    await fields.get_by_label("Tag").fill("late")
    await expect(first).to_have_count(0)
    await expect(second).to_be_visible()
    await expect_query(page, session="shift-1", subject=None, tag="late")

    await fields.get_by_label("Service", exact=True).fill("ward 0")
    await expect(second).to_have_count(0)
    await page.goto(f"{site.address}/runs/{ids[0]}")
    await page.get_by_role("link", name="ward 0").click()
    await expect(first).to_be_visible()
    await expect(second).to_have_count(0)
    await expect_query(page, service="ward 0", tag=None)


@pytest.mark.thorough
async def test_list_without_matches_offers_to_reset_the_filters(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run(title="Resettable", start=utc_now()))
    await _open(page, site.address, "?q=there-is-no-such-run&status=failed")

    await expect(page.get_by_text("No run matches these filters.")).to_be_visible()
    await page.get_by_role("button", name="Reset the filters").click()
    await expect(_run(page, run)).to_be_visible()
    await expect_query(page, q=None, status=None)


@pytest.mark.thorough
async def test_scrolling_loads_each_older_run_once(
    page: Page, site: Site, records: Records
) -> None:
    runs = [
        await records.record(
            sample_run(sub_plans=0, title=f"Scrolled {n}", start=START + timedelta(minutes=n))
        )
        for n in range(120)
    ]
    await _open(page, site.address, "?q=Scrolled")
    await expect(_run(page, runs[-1])).to_be_visible()
    await expect(_run(page, runs[0])).to_have_count(0)

    await page.get_by_role("main").hover()
    async with asyncio.timeout(60):
        while await _run(page, runs[0]).count() == 0:
            await page.mouse.wheel(0, 20_000)
    await expect(_run(page, runs[0])).to_have_count(1)
    await expect(page.get_by_role("row")).to_have_count(121)
    await expect(page.get_by_role("button", name="Show more")).to_have_count(0)


@pytest.mark.thorough
async def test_new_runs_are_announced_without_moving_a_scrolled_list(
    page: Page, site: Site, records: Records
) -> None:
    def run_at(second: int, title: str) -> SampleRun:
        return sample_run(0, title, start=START + timedelta(seconds=second))

    runs = [await records.record(run_at(n, f"Awaited {n}")) for n in range(40)]
    await _open(page, site.address, "?q=Awaited")
    await expect(_run(page, runs[-1])).to_be_visible()
    await page.get_by_role("main").hover()
    await page.mouse.wheel(0, 300)
    await expect(page.get_by_role("main")).not_to_have_js_property("scrollTop", 0)
    before = await _height(page, runs[20])

    new = await records.record(run_at(40, "Awaited and new"))
    button = page.get_by_role("button", name="1 new run")
    await expect(button).to_be_visible()
    assert await _height(page, runs[20]) == pytest.approx(before, abs=1)
    await expect(_run(page, new)).to_have_count(0)
    await button.click()
    await expect(_run(page, new)).to_be_in_viewport()
    await expect(button).to_have_count(0)


async def test_sorted_list_announces_new_runs(page: Page, site: Site, records: Records) -> None:
    old = await records.record(sample_run(sub_plans=3, title="Ranked old"))
    await _open(page, site.address, "?q=Ranked&sort=-toolCalls&columns=toolCalls")
    await expect(_run(page, old)).to_be_visible()
    new = await records.record(sample_run(sub_plans=0, title="Ranked new"))

    button = page.get_by_role("button", name="1 new run")
    await expect(button).to_be_visible()
    await expect(page.get_by_text("2 runs", exact=True)).to_be_visible()
    await expect(_run(page, new)).to_have_count(0)
    await button.click()
    await expect(_run(page, new)).to_be_visible()
    await expect(button).to_have_count(0)


async def test_hovering_a_row_prefetches_its_run(page: Page, site: Site, records: Records) -> None:
    run = await records.record(sample_run(title="Pointed at"))
    await _open(page, site.address, "?q=Pointed")
    async with page.expect_response(f"**/api/plans/{run.root}/tree?*"):
        await _run(page, run).hover()
    trees: list[str] = []
    page.on(
        "request", lambda request: trees.append(request.url) if "/tree" in request.url else None
    )

    await _run(page, run).click()
    await expect(page.get_by_role("tree")).to_be_visible()
    assert trees == []


async def test_comparison_of_two_picked_runs_has_the_older_one_left(
    page: Page, site: Site, records: Records
) -> None:
    older, newer = [
        await records.record(sample_run(title=f"Picked {n}", start=START + timedelta(hours=n)))
        for n in range(2)
    ]
    await _open(page, site.address, "?q=Picked")

    await page.get_by_role("checkbox", name="Pick Picked 1").focus()
    await page.keyboard.press("Space")
    await expect(page.get_by_role("link", name="Choose another run")).to_be_visible()
    await page.get_by_role("checkbox", name="Pick Picked 0").focus()
    await page.keyboard.press("Space")
    await page.get_by_role("link", name="Compare them").focus()
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/compare/{older.root}/{newer.root}")
    await expect(page.get_by_role("treegrid")).to_be_visible()


async def test_picked_runs_are_exported_and_deleted_together(
    page: Page, site: Site, records: Records
) -> None:
    runs = [await records.record(sample_run(title=f"Gathered {n}")) for n in range(3)]
    await page.goto(f"{site.address}/runs?q=Gathered")
    await expect(page.get_by_role("row")).to_have_count(4)
    # The runs began together, so their order is that of ids of one millisecond.
    await page.get_by_role("row").nth(1).get_by_role("link").first.focus()
    for key in "xjxjx":
        await page.keyboard.press(key)
    bar = page.get_by_role("region", name="Picked runs")
    await expect(bar).to_contain_text("3 runs picked")
    await expect(bar.get_by_role("link")).to_have_count(0)

    names: set[str] = set()
    page.on("download", lambda download: names.add(download.suggested_filename))
    async with page.expect_event("download", lambda _: len(names) == 3):
        await page.keyboard.press("e")
    assert names == {f"{run.root}.jsonl" for run in runs}
    await bar.get_by_role("button", name="Delete").click()
    dialog = page.get_by_role("dialog", name="Delete")
    await expect(dialog).to_contain_text("Delete these 3 runs")
    await dialog.get_by_role("button", name="Delete").click()
    await expect(bar).to_have_count(0)
    await expect(_run(page, runs[0])).to_have_count(0)


async def test_text_of_a_row_can_be_selected_and_a_click_on_it_opens_the_run(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run(title="Selectable"))
    await page.goto(f"{site.address}/runs?q=Selectable")
    row = page.get_by_role("row").filter(has=_run(page, run))
    box = await settled_box(row.locator(".agent"))
    middle = box["y"] + box["height"] / 2
    await page.mouse.move(box["x"] + 4, middle)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] - 4, middle, steps=4)
    await page.mouse.up()

    assert "nurse" in await page.evaluate("getSelection().toString()")
    await expect(page).to_have_url(re.compile(r"/runs\?q=Selectable$"))
    await page.mouse.click(box["x"] + box["width"] - 4, middle)
    await page.wait_for_url(f"**/runs/{run.root}")


@pytest.mark.thorough
async def test_traces_without_agent_work_are_listed_on_demand(page: Page, site: Site) -> None:
    await _open(page, site.address)
    fields = await _more(page)
    await fields.get_by_role("checkbox", name="Other traces").check()

    await expect_query(page, otherTraces="true")
    await expect(page.get_by_role("table")).to_be_visible()


@pytest.mark.thorough
async def test_empty_list_shows_commands_with_the_address_of_this_server(
    page: Page, empty_site: str
) -> None:
    await page.goto(empty_site)

    await expect(page.get_by_text(f"{empty_site}/v1/traces")).to_be_visible()
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.get_by_role("button", name="Copy: From OpenTelemetry").click()
    copied = await page.evaluate("navigator.clipboard.readText()")
    assert copied.splitlines()[0] == (
        f"export OTEL_EXPORTER_OTLP_TRACES_ENDPOINT={empty_site}/v1/traces"
    )
    await page.get_by_role("button", name="Show them too").click()
    fields = await _more(page)
    await expect(fields.get_by_role("checkbox", name="Other traces")).to_be_checked()


@pytest.mark.thorough
async def test_list_shows_local_time_and_the_exact_time_on_hover(
    page: Page, site: Site, records: Records
) -> None:
    start = datetime(2026, 2, 3, 4, 5, 6, 789_000, tzinfo=UTC)
    run = await records.record(sample_run(title="Zoned", start=start))
    await _open(page, site.address, "?q=Zoned")
    moment = page.get_by_role("row").filter(has=_run(page, run)).locator("time")

    await expect(moment).to_contain_text("ago")
    await expect(moment).to_have_attribute("title", "Feb 3, 2026, 04:05:06.789 AM UTC")


@pytest.mark.thorough
async def test_picked_runs_are_in_the_link_and_survive_filters(
    page: Page, site: Site, records: Records
) -> None:
    older, newer = [
        await records.record(sample_run(title=f"Kept {name}")) for name in ("once", "twice")
    ]
    await _open(page, site.address, "?q=Kept")
    for name in ("twice", "once"):
        await page.get_by_role("checkbox", name=f"Pick Kept {name}").check()
    await expect_query(page, q="Kept", picked=f"{newer.root}.{older.root}")

    await page.reload()
    await expect(page.get_by_role("checkbox", name="Pick Kept once")).to_be_checked()
    await page.get_by_role("searchbox", name="Search").fill("Kept twice")
    await expect(_run(page, older)).to_have_count(0)
    await page.get_by_role("link", name="Compare them").click()
    await page.wait_for_url(f"**/compare/{older.root}/{newer.root}")
    await page.go_back()
    await expect(page.get_by_role("status").filter(has_text="2 runs picked")).to_be_visible()
    await page.get_by_role("button", name="Pick none").click()
    await expect_query(page, picked=None)
