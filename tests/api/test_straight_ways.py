"""The straight way of a tree, beside the usual one, which an id in capitals takes."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from tests.api.conftest import Api
from tests.api.test_request_log import lines
from tests.sample_runs import sample_run
from tracer.ids import new_id
from tracer.lineage import Payloads

QUERIES = ["", *(f"?payloads={each}" for each in Payloads)]


async def both(api: Api, plan_id: str, query: str, **headers: str) -> list[dict[str, Any]]:
    """Return what comes of both ways, apart from what tells one request from another."""
    found = []
    for each in (plan_id, plan_id.upper()):
        answer = await api.client.get(f"/api/plans/{each}/tree{query}", headers=headers)
        said = dict(answer.headers) | {
            "x-request-id": "",
            "etag": answer.headers.get("etag", "")[:3],
        }
        found.append({"status": answer.status_code, "body": answer.content, "headers": said})
    return found


@pytest.mark.parametrize("query", QUERIES)
async def test_both_ways_answer_the_same(api: Api, query: str) -> None:
    run = await api.record(sample_run(sub_plans=1))
    for plan in (run.root, run.sub_plans[0]):
        straight, usual = await both(api, str(plan), query)
        assert straight == usual
        assert straight["status"] == 200
    straight, usual = await both(api, str(run.root), query, **{"if-none-match": "*"})
    assert straight == usual
    assert straight["status"] == 304


async def test_both_ways_refuse_the_same(api: Api) -> None:
    straight, usual = await both(api, str(new_id()), "")
    assert straight == usual
    assert straight["status"] == 404
    assert json.loads(straight["body"])["code"] == "not_found"


async def test_both_ways_are_told_of_in_the_same_words(api: Api, log: io.StringIO) -> None:
    run = await api.record(sample_run())
    await both(api, str(run.root), "?payloads=none")
    straight, usual = (
        {name: line[name] for name in ("route", "method", "status", "plan_id", "sent_bytes")}
        for line in lines(log)
        if line["event"] == "request"
    )
    assert straight == usual
    assert straight["route"] == "/api/plans/{planId}/tree"
    assert straight["plan_id"] == str(run.root)
