"""Invalid requests get problem details (RFC 9457) with a stable code and advice."""

from __future__ import annotations

from pathlib import Path

import httpx2
import psycopg

from api.schemas import PLAN_ID
from tests.api.conftest import Api, client_of, parts_without_database, serving_parts
from tests.sample_runs import sample_run
from tracer.records import new_id
from tracer.records.events import event_json
from tracer.runtime.scripted_model import ScriptedModel


async def test_malformed_run_cursor_is_rejected(api: Api) -> None:
    failures = []
    for cursor in ("x", "%%%", "bnVsbA", "W10", "null", "é", "WyJhIiwiYiJd"):
        for path in ("/api/runs", "/api/tool-calls"):
            response = await api.get(path, cursor=cursor)
            problem = response.json()
            if (response.status_code, problem.get("code")) != (
                400,
                "bad_cursor",
            ) or "Send `nextCursor`" not in problem["detail"]:
                failures.append(
                    f"{path}, cursor {cursor!r}: expected 400 bad_cursor with advice, "
                    f"got {response.status_code} {response.text[:200]}"
                )

    assert failures == []


async def test_invalid_value_gets_a_problem_with_its_location(api: Api) -> None:
    failures = []
    for path in (
        "/api/runs/not-an-id",
        "/api/runs?limit=0",
        "/api/runs?limit=many",
        "/api/runs?from=yesterday",
        "/api/runs?status=dead",
        f"/api/plans/{PLAN_ID}/tree?depth=0",
        f"/api/plans/{PLAN_ID}/tree?payloads=some",
    ):
        response = await api.get(path)
        problem = response.json()
        if (response.status_code, problem.get("code")) != (422, "invalid_request") or not problem[
            "errors"
        ]:
            failures.append(
                f"{path}: expected 422 invalid_request with errors, "
                f"got {response.status_code} {response.text[:200]}"
            )

    assert failures == []


async def test_unknown_path_gets_a_problem_with_404(api: Api) -> None:
    response = await api.get("/api/nothing")

    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"


async def test_unsupported_method_gets_a_problem_with_405(api: Api) -> None:
    response = await api.client.put("/api/runs")

    assert response.status_code == 405
    assert response.json()["code"] == "method_not_allowed"


async def test_delete_on_the_histogram_path_gets_405(api: Api) -> None:
    response = await api.client.delete("/api/runs/histogram")

    assert response.status_code == 405
    assert response.headers["allow"] == "GET"


async def test_rejected_body_is_not_returned_in_the_problem(api: Api) -> None:
    response = await api.client.post("/api/runs", json={"request": 7, "password": "s3cret"})

    assert response.status_code in (422, 503)
    assert "s3cret" not in response.text


async def test_unknown_query_parameter_gets_400(api: Api) -> None:
    for path in ("/api/runs?state=failed", "/api/runs?since=x", f"/api/runs/{PLAN_ID}?depth=1"):
        response = await api.get(path)

        assert response.status_code == 400
        assert "parameter" in response.json()["detail"]


async def test_time_range_that_ends_before_it_starts_is_rejected(api: Api) -> None:
    earlier, later = "2026-01-01T00:00:00Z", "2026-01-01T01:00:01+01:00"
    for path in ("/api/runs", "/api/tool-calls", "/api/stats/tools", "/api/stats/tools/measure"):
        response = await api.get(path, **{"from": later, "to": earlier})

        assert response.status_code == 400, path
        assert response.json()["code"] == "bad_request", path
        assert response.json()["detail"].startswith("'from' is later than 'to'"), path
        for fine in ({"from": earlier, "to": later}, {"from": later, "to": later}):
            assert (await api.get(path, **fine)).status_code != 400, path


async def test_unknown_path_or_method_gets_a_problem_that_lists_valid_ones(api: Api) -> None:
    path = await api.get("/api/nothing")
    method = await api.client.put("/api/runs")

    assert "/openapi.json" in path.json()["detail"]
    assert method.json()["detail"] == "This path does not support PUT. Use GET, POST."
    assert method.headers["allow"] == "GET, POST"


async def test_unsupported_method_lists_all_methods_of_the_path(api: Api) -> None:
    response = await api.client.put(f"/api/runs/{PLAN_ID}")

    assert response.json()["detail"].endswith("Use DELETE, GET.")


async def test_search_accepts_text_with_a_nul_byte(api: Api) -> None:
    response = await api.get("/api/runs", q="a\0b", agent="\0", tool="\0")

    assert response.status_code == 200


async def test_request_while_the_database_is_down_gets_a_problem(tmp_path: Path) -> None:
    async with (
        parts_without_database(tmp_path) as parts,
        client_of(parts) as client,
    ):
        ready = await client.get("/readyz")
        listed = await client.get("/api/runs")
        alive = await client.get("/healthz")

    assert ready.status_code == 503
    assert ready.json()["code"] == "store_unavailable"
    assert ready.headers["retry-after"] == "1"
    assert listed.status_code == 503
    assert alive.status_code == 200


async def test_write_that_exceeds_the_database_timeout_is_rejected(
    database_url: str, tmp_path: Path
) -> None:
    body = b"\n".join(map(event_json, sample_run().events))

    async def record(client: httpx2.AsyncClient) -> httpx2.Response:
        headers = {"Content-Type": "application/x-ndjson"}
        return await client.post("/api/events", content=body, headers=headers)

    async with (
        serving_parts(database_url, tmp_path, ScriptedModel([]), write_seconds=0.1) as parts,
        client_of(parts) as client,
        await psycopg.AsyncConnection.connect(database_url) as elsewhere,
    ):
        await elsewhere.execute("LOCK TABLE run IN EXCLUSIVE MODE")
        refused = await record(client)

    assert (refused.status_code, refused.json()["code"]) == (503, "store_unavailable")
    assert refused.headers["retry-after"] == "1"


async def test_request_to_a_database_without_migrations_gets_a_problem(
    empty_database_url: str, tmp_path: Path
) -> None:
    async with (
        serving_parts(empty_database_url, tmp_path, ScriptedModel([])) as parts,
        client_of(parts) as client,
    ):
        ready = await client.get("/readyz")

    assert ready.status_code == 503
    assert ready.json()["code"] == "schema_out_of_date"
    assert "tracer migrate" in ready.json()["detail"]


async def test_records_of_a_deleted_run_get_404(api: Api) -> None:
    run = await api.record(sample_run())

    deleted = await api.client.delete(f"/api/runs/{run.root}")
    again = await api.client.delete(f"/api/runs/{run.root}")

    assert deleted.status_code == 204
    assert again.status_code == 404
    for path in (
        f"/api/runs/{run.root}",
        f"/api/plans/{run.root}",
        f"/api/plans/{run.root}/tree",
        f"/api/tool-calls/{run.failed_call}",
        f"/api/think-acts/{run.think_act}",
    ):
        assert (await api.get(path)).status_code == 404
    late = await api.writer.write(run.events[:1])
    assert [refusal.code for refusal in late.refused] == ["run_deleted"]


async def test_cancelling_an_ended_run_gets_a_problem(api: Api) -> None:
    ended = await api.record(sample_run())
    running = await api.record(sample_run(finished=False))

    refused = await api.client.post(f"/api/runs/{ended.root}/cancel")
    wished = await api.client.post(f"/api/runs/{running.root}/cancel")

    assert refused.status_code == 409
    assert refused.json()["code"] == "run_not_active"
    assert wished.status_code == 202
    assert wished.json()["cancelRequestedAt"] is not None
    assert (await api.client.post(f"/api/runs/{new_id()}/cancel")).status_code == 404
