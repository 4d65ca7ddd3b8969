"""Model prices that a project sets itself: over HTTP, with `tracer prices`, and in costs."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.api.commands import serving_here, tracer
from tests.api.projects import Doors, two_projects
from tests.contract.moments import Moments
from tracer.records import Status, new_id
from tracer.records.access import Scope
from tracer.records.events import Event, ThoughtRecorded, event_json
from tracer.storage.postgres import ProjectPool, open_pool
from tracer.storage.postgres.keys import ApiKeys

LLAMA = {"model": "ward-llama", "inputUsd": 2, "outputUsd": 100}
SHOWN = {
    **LLAMA,
    "provider": None,
    "validFrom": "1970-01-01",
    "cacheReadUsd": None,
    "cacheWriteUsd": None,
    "reasoningUsd": None,
}


@pytest.fixture
async def doors(database_url: str, tmp_path: Path) -> AsyncIterator[Doors]:
    async with two_projects(database_url, tmp_path) as doors:
        doors.client.headers["Authorization"] = f"Bearer {doors.home.secret}"
        yield doors


def events_of(run: Moments, *models: str, **used: Any) -> list[Event]:
    """Return the events of a run with a round for each model; `used` replaces the tokens."""
    events: list[Event] = [run.plan_started(at=0), run.step_started(at=0)]
    tokens: dict[str, Any] = {"input_tokens": 1000, "output_tokens": 10} | used
    for model in models:
        think_act_id = new_id()
        asked: dict[str, Any] = {"requested_model": model, "provider": "vllm"}
        started = run.thought_started(think_act_id=think_act_id, **asked)
        ended: dict[str, Any] = {"think_act_id": think_act_id, "status": Status.SUCCEEDED}
        ended |= started.model_dump(include={"at", "root_plan_id", "plan_id", "step_id"})
        events += [started, ThoughtRecorded(**ended, **tokens)]
    return [*events, run.plan_finished(at=1)]


async def recorded(doors: Doors, *models: str, one_by_one: bool = False, **used: Any) -> str:
    run = Moments()
    events = [json.loads(event_json(event)) for event in events_of(run, *models, **used)]
    for part in [[event] for event in events] if one_by_one else [events]:
        body = {"events": part}
        answer = await doors.client.post("/api/events", json=body)
        assert answer.json()["refused"] == [], answer.text
    return str(run.root)


async def costs(doors: Doors, run: str) -> tuple[float | None, int]:
    shown = (await doors.client.get(f"/api/runs/{run}")).json()
    answer = await doors.client.get(f"/api/plans/{run}/tree")
    assert not re.search(r'"unpricedCalls":\s*(true|false)', answer.text)
    tree = answer.json()
    totals = (tree["cumulative"]["costUsd"], tree["cumulative"]["unpricedCalls"])
    assert (shown["costUsd"], shown["unpricedCalls"]) == totals
    return totals


async def test_prices_are_set_listed_and_deleted(doors: Doors) -> None:
    client = doors.client
    planted = (await client.get("/api/prices")).json()["items"]
    assert (await client.put("/api/prices", json=LLAMA)).json() == SHOWN
    newer = {**SHOWN, "provider": "vllm", "validFrom": "2026-11-01", "cacheReadUsd": 0.25}
    await client.put("/api/prices", json=newer)
    await client.put("/api/prices", json={**SHOWN, "outputUsd": 50})
    replaced = {**SHOWN, "outputUsd": 50}
    assert (await client.get("/api/prices")).json() == {"items": [replaced, newer, *planted]}

    deleted = [
        (await client.delete("/api/prices", params=which)).status_code
        for which in (
            {"model": "ward-llama", "provider": "vllm"},
            {"model": "ward-llama", "provider": "vllm", "validFrom": "2026-11-01"},
        )
    ]

    assert deleted == [404, 204]
    assert (await client.get("/api/prices")).json() == {"items": [replaced, *planted]}


async def test_invalid_prices_and_days_are_rejected(doors: Doors) -> None:
    changes: list[dict[str, Any]] = [
        {"inputUsd": -1},
        {"outputUsd": 1_000_001},
        {"model": ""},
        *({"validFrom": day} for day in ("soon", 0, "0", "20261101")),
        {"provider": "\0" * 200},
        {"usd": 1},
    ]
    accepted = [
        change
        for change in changes
        if (await doors.client.put("/api/prices", json=LLAMA | change)).status_code != 422
    ]
    assert accepted == []
    which = {"model": "ward-llama", "validFrom": "0"}
    assert (await doors.client.delete("/api/prices", params=which)).status_code == 422
    assert (await doors.client.get("/api/prices")).status_code == 200


async def test_only_admin_scope_changes_prices_of_its_own_project(
    doors: Doors, database_url: str
) -> None:
    async with open_pool(database_url) as pool:
        made = ApiKeys(ProjectPool(pool))
        keys = {scope: (await made.create(scope, [scope])).secret for scope in Scope}
    await doors.client.put("/api/prices", json=LLAMA)
    found = {}
    for scope, secret in keys.items():
        headers = {"Authorization": f"Bearer {secret}"}
        answers = [
            await doors.client.get("/api/prices", headers=headers),
            await doors.client.put("/api/prices", headers=headers, json=LLAMA),
            await doors.client.delete(
                "/api/prices", headers=headers, params={"model": "ward-llama"}
            ),
        ]
        found[scope] = [answer.status_code for answer in answers]
    assert found == {
        Scope.RECORD: [403, 403, 403],
        Scope.READ: [200, 403, 403],
        Scope.ADMIN: [200, 200, 204],
    }

    await doors.client.put("/api/prices", json=LLAMA)
    theirs = {"Authorization": f"Bearer {doors.other.secret}"}
    [planted] = (await doors.client.get("/api/prices", headers=theirs)).json()["items"]
    assert planted["model"] == "~canary-other"


async def test_unknown_cost_and_zero_cost_are_distinct(doors: Doors) -> None:
    await doors.client.put("/api/prices", json=LLAMA)
    await doors.client.put(
        "/api/prices", json={"model": "free", "provider": "vllm", "inputUsd": 0, "outputUsd": 0}
    )
    # 1,000 tokens at $2 a million and 10 at $100.
    found = [
        await costs(doors, await recorded(doors, *models))
        for models in (["ward-llama"], ["free"], ["unknown"], ["ward-llama", "unknown"], [])
    ]
    assert found == [(0.003, 0), (0.0, 0), (None, 1), (0.003, 1), (0.0, 0)]


async def test_own_price_replaces_the_cost_of_an_event(doors: Doors) -> None:
    await doors.client.put("/api/prices", json=LLAMA)
    run = await recorded(doors, "ward-llama", one_by_one=True, cost_usd="0.5")
    other = await recorded(doors, "other-llama", cost_usd="0.5")
    assert [await costs(doors, each) for each in (run, other)] == [(0.003, 0), (0.5, 0)]


def test_reproject_applies_prices_to_runs_of_events(database_url: str, tmp_path: Path) -> None:
    def tracer_here(*arguments: str) -> str:
        done = tracer(tmp_path, *arguments, TRACER_DATABASE_URL=database_url)
        assert done.code == 0, done.stderr
        return done.stdout

    run = Moments()
    body = b"\n".join(map(event_json, events_of(run, "ward-llama", "unknown")))
    with (
        serving_here(database_url, tmp_path / "server") as address,
        httpx2.Client(base_url=address) as client,
    ):

        def shown() -> tuple[float | None, int, int]:
            run_json = client.get(f"/api/runs/{run.root}").json()
            return run_json["costUsd"], run_json["unpricedCalls"], run_json["revision"]

        client.post("/api/events", content=body, headers={"Content-Type": "application/x-ndjson"})
        set_price = ("prices", "set", "ward-llama", "--input", "2", "--output", "100")
        tracer_here(*set_price, "--from", "2020-01-01")
        [listed] = json.loads(tracer_here("prices", "list", "--json"))
        assert listed == SHOWN | {"validFrom": "2020-01-01"}
        assert "2020-01-01" in tracer_here("prices", "list")
        cost, unpriced, revision = shown()
        assert (cost, unpriced) == (None, 2)

        done = json.loads(tracer_here("reproject", str(run.root), "--prices", "--json"))

        assert done == {"runs": 0, "priced": 1, "failed": [], "rejected": []}
        assert shown() == (0.003, 1, revision + 1)
        tracer_here("prices", "delete", "ward-llama", "--from", "2020-01-01")
        assert json.loads(tracer_here("prices", "list", "--json")) == []


def test_rate_that_is_no_amount_is_rejected(tmp_path: Path) -> None:
    nowhere = {"TRACER_DATABASE_URL": "postgresql://127.0.0.1:9/none"}
    for rate in ("nan", "-1", "1e7", "two", ""):
        arguments = ("prices", "set", "ward-llama", f"--input={rate}", "--output=1")
        done = tracer(tmp_path, *arguments, **nowhere)
        assert done.code == 1
        assert "input_usd: " in done.stderr
