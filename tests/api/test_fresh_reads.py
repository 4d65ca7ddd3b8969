"""Reads of runs with new spans: spans are projected first, or reported as missing."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import datetime
from inspect import getmembers, isfunction, signature
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest
from fastapi.routing import APIRoute

from api.app import ALL_ROUTES, create_app
from api.freshness import KINDS
from tests.api.conftest import Api, client_of, serving_parts
from tests.otel.captured import bodies
from tests.otel.made_traces import TRACE_ID, agent, body_of, make_span, spans_from, tool
from tests.otel.sent import traces_of
from tests.projecting import DatabaseProjection
from tests.sample_runs import sample_run
from tracer.otel.dialects import genai
from tracer.otel.projection import span_records
from tracer.runtime.scripted_model import ScriptedModel
from tracer.storage.postgres import ProjectPool, connection_options, open_pool
from tracer.storage.postgres.projection import PostgresProjection
from tracer.store import TraceReader

RUN = UUID(TRACE_ID)
PATHS = (f"/api/runs/{RUN}", f"/api/plans/{RUN}/tree")
JSON = {"Content-Type": "application/json"}


async def post(api: Api, *spans: dict[str, Any], **headers: str) -> httpx2.Response:
    answer = await api.client.post("/v1/traces", content=body_of(*spans), headers=JSON | headers)
    assert answer.status_code == 200
    return answer


async def get(api: Api, path: str, **headers: str) -> httpx2.Response:
    return await api.client.get(path, headers=headers)


def calls(number: int, at: tuple[float, float | None] = (0, 1)) -> list[dict[str, Any]]:
    """Return the spans of an agent with so many tool calls."""
    return [agent(1, "planner"), *(tool(2 + each, "x", parent=1, at=at) for each in range(number))]


def call_path(number: int) -> str:
    [trace] = traces_of(spans_from(*calls(number + 1)))
    _, call_id = span_records([trace.message])[(2 + number).to_bytes(8)]
    return f"/api/tool-calls/{UUID(bytes=call_id)}"


async def test_reading_an_accepted_trace_returns_all_its_records_at_once(api: Api) -> None:
    for body in bodies("pydantic-ai-default-single"):
        await api.client.post(
            "/v1/traces", content=body, headers={"Content-Type": "application/x-protobuf"}
        )
    [run] = (await api.get("/api/runs", otherTraces="true")).json()["items"]

    tree = await api.get(f"/api/plans/{run['rootPlanId']}/tree")

    assert tree.json()["cumulative"]["toolCalls"] == 8
    assert tree.json()["behind"] is None
    assert "Tracer-Behind" not in tree.headers


@pytest.mark.parametrize(
    ("path", "calls_in"),
    [
        (f"/api/runs/{RUN}", lambda body: body["toolCalls"]),
        (f"/api/plans/{RUN}/tree", lambda body: body["cumulative"]["toolCalls"]),
        (f"/api/plans/{RUN}/tree?depth=1", lambda body: body["cumulative"]["toolCalls"]),
        (f"/api/runs/{RUN}/spans", lambda body: len(body["items"]) - 1),
        (f"/api/runs/{RUN}/diff/{RUN}", lambda body: body["right"]["totals"]["toolCalls"]),
    ],
)
async def test_each_read_of_a_run_includes_its_pending_spans(
    api: Api, path: str, calls_in: Any
) -> None:
    await post(api, *calls(1))

    answer = await get(api, path)

    assert answer.status_code == 200
    assert calls_in(answer.json()) == 1


async def test_record_of_a_pending_span_is_found_by_its_id(api: Api) -> None:
    await post(api, *calls(1, at=(0, None)))
    assert (await get(api, call_path(0))).json()["status"] == "running"

    await post(api, *calls(1))

    assert (await get(api, call_path(0))).json()["status"] == "succeeded"


async def test_new_spans_change_the_etag_before_if_none_match_is_compared(api: Api) -> None:
    await post(api, *calls(1))
    tags = {path: (await get(api, path)).headers["ETag"] for path in PATHS}
    for path, tag in tags.items():
        assert (await get(api, path, **{"If-None-Match": tag})).status_code == 304
    for number, (path, tag) in enumerate(tags.items(), 2):
        await post(api, *calls(number))

        answer = await get(api, path, **{"If-None-Match": tag})

        assert answer.status_code == 200
        assert answer.headers["ETag"] != tag


@pytest.fixture
async def lagging(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Api]:
    """A server without projectors, whose reads wait for none."""
    monkeypatch.setattr("api.freshness.READ_SECONDS", 0.0)
    async with (
        open_pool(database_url) as pool,
        serving_parts(database_url, tmp_path, ScriptedModel([])) as parts,
    ):
        projection = PostgresProjection(ProjectPool(pool))
        async with client_of(replace(parts, projection=projection)) as client:
            yield Api(client, parts.writer, DatabaseProjection(connection_options(database_url)))


async def test_run_with_pending_spans_reports_that_it_is_behind(lagging: Api) -> None:
    await post(lagging, *calls(1))
    await lagging.project()
    tags = {path: (await get(lagging, path)).headers["ETag"] for path in PATHS}
    await post(lagging, *calls(2))

    for path, tag in tags.items():
        answer = await get(lagging, path, **{"If-None-Match": tag})

        assert answer.status_code == 200
        assert "ETag" not in answer.headers
        assert answer.headers["Cache-Control"] == "private, no-store"
        body = answer.json()
        assert body["behind"]["spans"] == 3
        since = datetime.fromisoformat(body["behind"]["since"])
        assert body.get("projectionError") is None
        found = re.fullmatch(r'spans=3, since="(.+Z)"', answer.headers["Tracer-Behind"])
        assert found is not None
        assert datetime.fromisoformat(found[1]) == since
    answer = await get(lagging, call_path(0))
    assert answer.headers["Tracer-Behind"].startswith("spans=3, ")
    await lagging.project()
    for path in PATHS:
        answer = await get(lagging, path)
        assert answer.json()["behind"] is None
        assert "ETag" in answer.headers


async def test_acknowledged_run_is_never_answered_with_404_before_its_projection(
    lagging: Api,
) -> None:
    await post(lagging, *calls(1))
    paths = [
        path.replace("{rootPlanId}", str(RUN)).replace("{a}", str(RUN)).replace("{b}", str(RUN))
        for path in _paths_of_runs()
        if not path.endswith("/search")  # it finds what is recorded, and never waits
    ]
    assert len(paths) >= 4

    for path in (*paths, *PATHS):
        answer = await get(lagging, path, **{"If-None-Match": '"1"'})
        assert answer.status_code == 200, path
        if not path.endswith("/export"):  # it contains the spans, and never waits
            assert answer.headers["Tracer-Behind"].startswith("spans=2, "), path

    tree = (await get(lagging, PATHS[1])).json()
    assert (tree["planId"], tree["status"]) == (str(RUN), "unknown")
    assert (tree.get("agentExecutions", []), tree["unplaced"]) == ([], [])
    assert tree["behind"]["spans"] == 2
    assert len((await lagging.get(f"/api/runs/{RUN}/spans", limit=1)).json()["items"]) == 1


async def test_new_spans_are_listed_even_if_they_change_no_record(api: Api) -> None:
    await post(api, *calls(1))
    first = await api.read(f"/api/runs/{RUN}")
    assert len((await api.get(f"/api/runs/{RUN}/spans")).json()["items"]) == 2

    await post(api, make_span(9, "GET", parent=2))

    assert len((await api.get(f"/api/runs/{RUN}/spans")).json()["items"]) == 3
    assert await api.read(f"/api/runs/{RUN}") == first


async def test_spans_of_a_run_of_events_are_listed_at_once(api: Api) -> None:
    run = await api.record(sample_run())
    for number in (1, 2):
        span = make_span(number, "GET") | {"traceId": run.root.hex}
        await post(api, span)

        spans = await api.get(f"/api/runs/{run.root}/spans")

        assert len(spans.json()["items"]) == number


async def test_fresh_read_waits_until_all_accepted_spans_are_projected(lagging: Api) -> None:
    await post(lagging, *calls(1))
    answers = [asyncio.create_task(lagging.get(path, fresh="true")) for path in PATHS]
    while not all(answer.done() for answer in answers):
        await lagging.project()

    for answer in answers:
        assert answer.result().json()["behind"] is None
        assert "ETag" in answer.result().headers


async def test_read_after_a_failed_projection_reports_the_reason(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(span: object) -> Any:
        raise KeyError("patient 4711")

    await post(api, *calls(1))
    await api.project()
    with monkeypatch.context() as patched:
        patched.setattr(genai, "kind_of", faulty)
        await post(api, *calls(2))
        for _ in range(5):
            await api.project()

    run, tree = [await get(api, path) for path in PATHS]

    assert run.json()["toolCalls"] == tree.json()["cumulative"]["toolCalls"] == 1
    assert run.json()["behind"]["spans"] == tree.json()["behind"]["spans"] == 3
    assert "KeyError" in run.json()["projectionError"]
    assert "4711" not in run.text
    assert "ETag" not in run.headers


@pytest.mark.parametrize(
    ("preference", "applied"),
    [
        ("wait=5", "wait=5"),
        ('respond-async, WAIT = "7"; foo=bar', "wait=7"),
        ("wait=100", "wait=30"),
        ("wait=soon, wait=9", "wait=9"),
        ("wait=5, wait=9", "wait=5"),
        ("wait=-1", None),
        ("wait", None),
        ("", None),
    ],
)
async def test_prefer_wait_header_delays_the_response_until_the_projection(
    api: Api, preference: str, applied: str | None
) -> None:
    answer = await post(api, *calls(1), Prefer=preference)

    assert answer.headers.get("Preference-Applied") == applied
    listed = (await api.get("/api/runs")).json()["items"]
    assert [run["toolCalls"] for run in listed] == ([1] if applied else [])


async def test_prefer_wait_is_not_applied_if_the_projection_takes_longer(lagging: Api) -> None:
    answer = await post(lagging, *calls(1), Prefer="wait=0")

    assert "Preference-Applied" not in answer.headers


async def test_new_run_is_listed_only_with_other_traces_before_its_projection(api: Api) -> None:
    await post(api, *calls(1))

    assert (await api.get("/api/runs")).json()["items"] == []
    [run] = (await api.get("/api/runs", otherTraces="true")).json()["items"]
    assert run["rootPlanId"] == str(RUN)
    assert "behind" not in run


def test_only_routes_of_one_run_or_record_accept_the_fresh_parameter() -> None:
    create_app()
    ids = {"rootPlanId", "planId", "stepId", "thinkActId", "toolCallId", "a", "b"}
    fresh, stale = set(), set()
    for route in ALL_ROUTES:
        if isinstance(route, APIRoute) and "GET" in (route.methods or ()):
            names = {parameter.alias for parameter in _query_parameters(route.dependant)}
            is_of_one = bool(ids & set(re.findall(r"{(\w+)}", route.path)))
            if "fresh" in names:
                assert is_of_one or route.path.startswith(("/api/find", "/api/questions/")), (
                    route.path
                )
                fresh.add(route.path)
            elif is_of_one:
                stale.add(route.path)

    assert len(fresh) >= 9
    assert stale == {"/api/runs/{rootPlanId}/events"}


def _paths_of_runs() -> list[str]:
    """Return the paths that read one run, except those that stream it."""
    create_app()
    paths = {
        route.path
        for route in ALL_ROUTES
        if isinstance(route, APIRoute) and "GET" in (route.methods or ())
    }
    return sorted(
        path
        for path in paths
        if re.search(r"{(rootPlanId|a)}", path) and not path.endswith("/events")
    )


def _query_parameters(dependant: Any) -> list[Any]:
    below = [each for inner in dependant.dependencies for each in _query_parameters(inner)]
    return [*dependant.query_params, *below]


def test_fresh_reads_cover_each_reader_method_of_one_run_or_record() -> None:
    """All other methods show projected records without waiting."""
    methods = {
        name: list(signature(method).parameters.values())[1:]
        for name, method in getmembers(TraceReader, isfunction)
        if not name.startswith("_")
    }
    of_one = {
        name for name, given in methods.items() if given and str(given[0].annotation) == "UUID"
    }

    others = {"read_changes", "read_whole_run", "find_runs_like", "list_span_parts", "search_run"}
    assert of_one == {*KINDS, *others}
