"""The fast routes return what the FastAPI routes return, which a trailing `&` selects."""

from __future__ import annotations

import io
import json
from typing import Any, get_args

import pytest

from api.plans.routes import ShownPayloads
from tests.api.conftest import Api
from tests.api.test_request_log import lines
from tests.sample_runs import sample_run
from tracer.records.ids import new_id

QUERIES = ["", *(f"payloads={each}" for each in get_args(ShownPayloads))]


async def both(api: Api, plan_id: object, query: str, **headers: str) -> list[dict[str, Any]]:
    """Return the responses of both routes, without what differs between two requests."""
    found = []
    for each in (query, f"{query}&"):
        answer = await api.client.get(f"/api/plans/{plan_id}/tree?{each}", headers=headers)
        compared = dict(answer.headers) | {"x-request-id": ""}
        found.append({"status": answer.status_code, "body": answer.content, "headers": compared})
    return found


@pytest.mark.parametrize("query", QUERIES)
async def test_fast_and_full_route_return_the_same_tree(api: Api, query: str) -> None:
    run = await api.record(sample_run(sub_plans=1))
    for plan in (run.root, run.sub_plans[0], str(run.root).upper()):
        fast, full = await both(api, plan, query)
        assert fast == full
        assert fast["status"] == 200
    fast, full = await both(api, run.root, query, **{"if-none-match": "*"})
    assert fast == full
    assert fast["status"] == 304


async def test_fast_and_full_route_return_the_same_problem(api: Api) -> None:
    fast, full = await both(api, new_id(), "")
    assert fast == full
    assert fast["status"] == 404
    assert json.loads(fast["body"])["code"] == "not_found"


async def test_fast_and_full_route_write_the_same_log_line(api: Api, log: io.StringIO) -> None:
    run = await api.record(sample_run())
    await both(api, run.root, "payloads=none")
    fast, full = (
        {name: line[name] for name in ("route", "method", "status", "plan_id", "sent_bytes")}
        for line in lines(log)
        if line["event"] == "request"
    )
    assert fast == full
    assert fast["route"] == "/api/plans/{planId}/tree"
    assert fast["plan_id"] == str(run.root)


async def test_requests_that_the_fast_route_cannot_serve_get_the_full_route(api: Api) -> None:
    run = await api.record(sample_run())
    path = f"/api/plans/{run.root}/tree"
    statuses = {
        "depth": (await api.get(path, depth=1)).status_code,
        "unknown parameter": (await api.get(path, colour="red")).status_code,
        "invalid value": (await api.get(path, payloads="all")).status_code,
        "invalid id": (await api.get("/api/plans/x/tree")).status_code,
        "other method": (await api.client.post(path)).status_code,
        "HEAD": (await api.client.head(path)).status_code,
    }

    assert statuses == {
        "depth": 200,
        "unknown parameter": 400,
        "invalid value": 422,
        "invalid id": 422,
        "other method": 405,
        "HEAD": 405,
    }
