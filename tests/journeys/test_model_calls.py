"""The details of a twelfth model call from an adapter or OTLP begin with its new messages."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest
from playwright.async_api import Page

from tests.journeys.conftest import Records, Site
from tests.journeys.model_calls import expect_new_first, otlp_body, run_langchain
from tests.journeys.tree_page import open_run, row
from tracer.clock import utc_now


async def _open_twelfth(page: Page, site: Site, run: UUID | str) -> None:
    """Open a run by link, and its twelfth model call by a click."""
    tree: Any = await site.read(f"/api/plans/{run}/tree")
    rounds = [each for step in tree["agentExecutions"] for each in step["thinkActs"]]
    await open_run(page, site.address, run, all_records=False)
    await row(page, rounds[11]["thinkActId"]).click()


async def test_new_messages_are_first_in_a_run_recorded_by_the_langchain_adapter(
    page: Page, site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACER_HOME", str(tmp_path))
    began = utc_now()
    await asyncio.to_thread(run_langchain, site.address)
    listed: Any = await site.read("/api/runs?agent=billing")
    [run] = [each for each in listed["items"] if each["startedAt"] >= began.isoformat()[:19]]
    await _open_twelfth(page, site, run["rootPlanId"])

    await expect_new_first(page)


@pytest.mark.thorough
async def test_new_messages_are_first_in_a_run_received_over_otlp(
    page: Page, site: Site, records: Records
) -> None:
    run, body = otlp_body()
    async with httpx2.AsyncClient(base_url=site.address, timeout=60) as client:
        answer = await client.post(
            "/v1/traces", content=body, headers={"content-type": "application/json"}
        )
    assert answer.status_code == 200, answer.text
    await records.project()
    await _open_twelfth(page, site, run)

    await expect_new_first(page)
