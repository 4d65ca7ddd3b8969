"""The routes that FastAPI only documents check a request as all other routes do."""

from __future__ import annotations

import io
from typing import Any

from tests.api.conftest import Api
from tests.api.test_request_log import lines
from tests.sample_runs import sample_run


async def test_plain_routes_check_path_query_and_method(api: Api) -> None:
    run = await api.record(sample_run())
    path = f"/api/plans/{run.root}/tree"
    answers: dict[str, Any] = {
        "depth": await api.get(path, depth=1),
        "payloads": await api.get(path, payloads="none", fresh="true"),
        "upper case": await api.get(path.replace(str(run.root), str(run.root).upper())),
        "unchanged": await api.client.get(path, headers={"If-None-Match": "*"}),
        "unknown parameter": await api.get(path, colour="red"),
        "invalid value": await api.get(path, payloads="all"),
        "invalid id": await api.get("/api/plans/x/tree"),
        "other method": await api.client.post(path),
        "HEAD": await api.client.head(path),
        "OTLP with a parameter": await api.client.post("/v1/traces?a=b", json={}),
        "OTLP with GET": await api.get("/v1/traces"),
    }

    assert {name: answer.status_code for name, answer in answers.items()} == {
        "depth": 200,
        "payloads": 200,
        "upper case": 200,
        "unchanged": 304,
        "unknown parameter": 400,
        "invalid value": 422,
        "invalid id": 422,
        "other method": 405,
        "HEAD": 405,
        "OTLP with a parameter": 400,
        "OTLP with GET": 405,
    }
    assert answers["invalid value"].json()["errors"][0]["loc"] == ["query", "payloads"]
    assert answers["invalid id"].json()["errors"][0]["loc"] == ["path", "planId"]
    assert answers["other method"].headers["allow"] == "GET"


async def test_plain_route_logs_its_template_and_the_ids_of_the_path(
    api: Api, log: io.StringIO
) -> None:
    run = await api.record(sample_run())
    await api.get(f"/api/plans/{run.root}/tree", payloads="none")
    line = [each for each in lines(log) if each["event"] == "request"][-1]

    assert line["route"] == "/api/plans/{planId}/tree"
    assert line["plan_id"] == str(run.root)
