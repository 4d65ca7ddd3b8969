"""The header of the viewer's run page, including unknown values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from playwright.async_api import Page, expect

from tests.contract.moments import Moments
from tests.contract.test_leases import by
from tests.journeys.conftest import Records, Site
from tests.journeys.tree_page import expect_query, open_run
from tests.sample_runs import START, sample_run
from tracer.records import Status, new_id
from tracer.records.events import ErrorInfo, Event, PlanFinished, PlanStarted

pytestmark = pytest.mark.thorough


async def test_run_header_shows_session_and_subject(
    page: Page, site: Site, records: Records
) -> None:
    root = new_id()
    started = PlanStarted(
        at=START,
        root_plan_id=root,
        plan_id=root,
        title="Asked",
        session_id="ward-3",
        subject="p-7",
    )
    await records.write(started)
    await open_run(page, site.address, root)

    header = page.locator(".run-header")
    await expect(header.get_by_title("Session")).to_have_text("Session ward-3")
    await expect(header.get_by_title("User")).to_have_text("User p-7")


async def test_run_header_links_to_lists_of_related_runs(
    page: Page, site: Site, records: Records
) -> None:
    said = {"session": " ward 4&5", "subject": "p-7 字", "tag": "a=b#c"}
    labels = {"session": "Session", "subject": "User", "tag": "Tag"}
    for number, title in enumerate(("Earlier", "Later")):
        root = new_id()
        started = PlanStarted(
            at=START,
            root_plan_id=root,
            plan_id=root,
            title=f"{title} alike",
            session_id=said["session"],
            subject=said["subject"],
            tags=(said["tag"],) * number,
        )
        await records.write(started)
    await records.record(sample_run(title="Unlike"))

    for name, value in said.items():
        await open_run(page, site.address, root)
        shown = f"#{value}" if name == "tag" else f"{labels[name]} {value.strip()}"
        await page.locator(".run-header").get_by_role("link", name=shown, exact=True).click()
        await expect_query(page, **{name: value})
        runs = page.get_by_role("table").get_by_role("link")
        await expect(runs).to_have_text(["Later alike", "Earlier alike"][: 1 + (name != "tag")])
        await page.get_by_role("button", name="More filters").click()
        field = page.get_by_role("dialog").get_by_label(labels[name], exact=True)
        await expect(field).to_have_value(value)


async def test_run_header_omits_the_session_if_the_run_has_none(
    page: Page, site: Site, records: Records
) -> None:
    run = await records.record(sample_run())
    await open_run(page, site.address, run.root)

    await expect(page.locator(".run-header")).to_contain_text("Tool calls")
    await expect(page.locator(".run-header").get_by_title("Session")).to_have_count(0)


async def test_blank_header_values_are_not_links(page: Page, site: Site, records: Records) -> None:
    root = new_id()
    started = PlanStarted(
        at=START,
        root_plan_id=root,
        plan_id=root,
        session_id=" ",
        subject="\n",
        tags=("", " ", "seen"),
    )
    await records.write(started)
    await open_run(page, site.address, root)

    await expect(page.locator(".run-header").get_by_role("link")).to_have_text(
        ["Runs", "Compare", "#seen"]
    )
    await expect(page.locator(".run-header").get_by_title("Session")).to_have_count(0)


async def test_unknown_duration_is_a_dash(page: Page, site: Site, records: Records) -> None:
    root = new_id()
    ended = PlanFinished(at=START, root_plan_id=root, plan_id=root, status=Status.SUCCEEDED)
    await records.write(ended)
    await open_run(page, site.address, root)

    await expect(page.locator(".run-header").get_by_title("Duration")).to_have_text("–")


async def test_title_that_is_the_question_is_labelled_so(
    page: Page, site: Site, records: Records
) -> None:
    for title, labels in (("How was my week?", 1), ("Weekly review", 0)):
        run = await records.record(sample_run(title=title))
        await open_run(page, site.address, run.root)

        header = page.locator(".run-header .line")
        await expect(header.get_by_role("heading", name=title)).to_be_visible()
        await expect(header.get_by_text("Asked", exact=True)).to_have_count(labels)


async def test_header_counts_failures_as_the_api_the_list_and_sql(
    page: Page, site: Site, records: Records
) -> None:
    failed: dict[str, Any] = {"status": Status.FAILED, "error": ErrorInfo(type="E", message="no")}
    lost = new_id()
    endings: dict[str, Callable[[Moments], list[Any]]] = {
        "handled": lambda run: [run.call_finished(**failed), run.plan_finished()],
        "failed": lambda run: [run.call_finished(**failed), run.step_finished(**failed)],
        "cancelled": lambda run: [run.call_finished(**failed), run.plan_finished(**CANCELLED)],
        "lost": lambda run: [run.call_finished(**failed), run.call_started(tool_call_id=new_id())],
        "failed above a lost call": lambda run: [run.step_finished(**failed)],
    }
    counted = {}
    for name, ending in endings.items():
        run = Moments()
        begun: list[Event] = [run.plan_started(title=name), run.step_started(), run.call_started()]
        end: list[Event] = [run.plan_finished(**failed)] if name.startswith("failed") else []
        await records.write(*by(lost, *begun, *ending(run), *end))
        with psycopg.connect(site.database_url) as connection:
            connection.execute(
                "UPDATE recorder_run SET abandoned_at = now() WHERE root_plan_id = %s", [run.root]
            )
            query = "SELECT status, failed_calls FROM trace.runs WHERE root_plan_id = %s"
            in_sql = connection.execute(query, [run.root]).fetchone()
        shown: Any = await site.read(f"/api/runs/{run.root}")
        assert in_sql == (shown["status"], shown["failedCalls"])
        failures, handled = shown["failures"], shown["handledFailures"]
        tree: Any = await site.read(f"/api/plans/{run.root}/tree")
        assert tree["cumulative"]["failures"] == failures
        counted[name] = (shown["status"], failures, handled)

        await open_run(page, site.address, run.root)
        header = page.locator(".run-header .facts")
        texts = {f"Failures {failures}": failures > handled, f"{handled} handled": handled > 0}
        for text, is_shown in texts.items():
            await expect(header.get_by_text(text)).to_have_count(int(is_shown))
        banner = page.get_by_role("region", name="Failures")
        await expect(banner).to_have_count(int(shown["status"] in ("failed", "abandoned")))
    assert counted == {
        "handled": ("succeeded", 1, 1),
        "failed": ("failed", 1, 0),
        "cancelled": ("cancelled", 1, 1),
        "lost": ("abandoned", 1, 0),
        "failed above a lost call": ("failed", 1, 0),
    }


CANCELLED: dict[str, Any] = {"status": Status.CANCELLED, "reason": "cancelled"}
