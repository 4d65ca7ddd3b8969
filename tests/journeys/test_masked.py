"""The viewer shows that a value was masked, and where."""

from __future__ import annotations

from typing import Any

from playwright.async_api import Page, expect

from tests.canaries import SECRETS
from tests.journeys.axe import violations
from tests.journeys.conftest import Records, Site
from tests.journeys.tree_page import details, open_run
from tests.sample_runs import START, sample_run
from tracer.records import Status, new_id
from tracer.records.events import ToolCallFinished, ToolCallStarted


async def test_details_say_where_a_value_was_redacted(
    page: Page, site: Site, records: Records
) -> None:
    run, call = await records.record(sample_run(sub_plans=0)), new_id()
    ids: dict[str, Any] = {"root_plan_id": run.root, "plan_id": run.root, "step_id": run.step}
    await records.write(
        ToolCallStarted(
            at=START,
            **ids,
            tool_call_id=call,
            name="sign_in",
            arguments='{"user":"ann","headers":{"x-api-key":"canary-of-a-key"}}',
            position=1,
        ),
        ToolCallFinished(
            at=START,
            **ids,
            tool_call_id=call,
            status=Status.SUCCEEDED,
            result=f"Signed in with {SECRETS[0].text}.",
        ),
    )
    await open_run(page, site.address, run.root, select=call)

    await expect(details(page)).to_contain_text(
        "Masked or not kept: arguments:/headers/x-api-key, result"
    )
    shown = details(page).get_by_role("region", name="Result")
    await expect(shown).to_have_text(f"Signed in with [masked: {SECRETS[0].rule}].")
    said = await page.content()
    assert "canary-of-a-key" not in said
    assert SECRETS[0].hidden not in said
    assert await violations(page) == []
