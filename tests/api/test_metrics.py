"""Metrics for Prometheus, and access to them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import httpx2
import psycopg
from prometheus_client.parser import text_string_to_metric_families

from api.app import create_app
from api.main import server_parts
from api.metrics import Metrics
from api.parts import Parts
from api.routes.health import server_metrics
from tests.api import ward
from tests.api.conftest import Api, client_of, parts_without_database, serving_parts
from tests.api.projects import two_projects
from tests.otel.made_traces import body_of, make_span
from tests.sample_runs import sample_run
from tracer.records import new_id
from tracer.records.events import event_json
from tracer.runtime.scripted_model import ScriptedModel
from tracer.settings import read_settings

DOCS = Path(__file__).parents[2] / "docs"
JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}

Series = dict[tuple[str, ...], float]


async def series(client: httpx2.AsyncClient, **headers: str) -> Series:
    """Return every sample by its name and the values of its labels, in the labels' order."""
    answer = await client.get("/metrics", headers=headers)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


async def complete_series(client: httpx2.AsyncClient, **headers: str) -> Series:
    """Return `series` once the database has counted the leases in time."""
    async with asyncio.timeout(60):
        while True:
            found = await series(client, **headers)
            if ("tracer_leases", "alive") in found:
                return found


async def test_stored_and_rejected_items_are_counted_by_source(api: Api) -> None:
    run = sample_run()
    lines = b"\n".join(map(event_json, run.events)) + b'\n{"type":"nothing"}\nno json'
    await api.client.post("/api/events", content=lines, headers=NDJSON)
    await api.client.post("/v1/traces", content=body_of(make_span(1, "a tool", {})), headers=JSON)

    samples = await series(api.client)

    assert samples["tracer_ingest_stored_total", "events"] == len(run.events)
    assert samples["tracer_ingest_stored_total", "spans"] == 1
    assert samples["tracer_ingest_refused_total", "invalid_event", "events"] == 1
    assert samples["tracer_ingest_refused_total", "not_json", "events"] == 1


async def test_requests_are_counted_by_path_template(api: Api) -> None:
    run = await api.record(sample_run())
    for _ in range(2):
        await api.read(f"/api/runs/{run.root}")
    await api.client.get(f"/api/runs/{run.step}")
    await api.client.get("/api/runs/no-id")
    for path in ("/", "/tools", f"/runs/{run.root}", "/favicon.svg"):
        await api.client.get(path)

    samples = await series(api.client)

    route = "/api/runs/{rootPlanId}"
    assert samples["tracer_http_requests_total", "GET", route, "200"] == 2
    assert samples["tracer_http_requests_total", "GET", "viewer", "200"] == 4
    assert samples["tracer_http_requests_total", "GET", route, "404"] == 1
    assert samples["tracer_http_requests_total", "GET", route, "422"] == 1
    assert samples["tracer_http_request_duration_seconds_count", "GET", route] == 4
    assert samples["tracer_http_problems_total", "not_found"] == 1
    assert samples["tracer_http_problems_total", "invalid_request"] == 1
    assert samples["tracer_http_requests_in_progress",] == 1


async def test_requests_with_different_values_create_no_new_metric_series(api: Api) -> None:
    samples = []
    for number in range(10):
        await api.client.get(f"/nothing-{number}")
        await api.client.request(f"M{number}", "/api/runs")
        await api.client.get(f"/api/runs/{number}", params={"q": str(number)})
        await api.client.get("/api/runs", headers={"User-Agent": str(number)})
        await api.client.get(f"/api/runs/{new_id()}", params={f"p{number}": ""})
        await api.client.post("/api/events", json={"events": [{"type": f"t{number}"}]})
        samples.append(await series(api.client))

    assert samples[-1]["tracer_http_requests_total", "GET", "none", "404"] == 10
    assert samples[-1].keys() == samples[1].keys()  # the first does not tell of its own asking


async def test_metrics_cover_pool_recorder_projection_and_leases(
    database_url: str, tmp_path: Path
) -> None:
    metrics = Metrics()
    async with (
        server_parts(
            read_settings(home=tmp_path),
            database_url,
            ward.application,
            on_commit=metrics.note_commit,
        ) as made_parts,
        client_of(made_parts, metrics) as client,
    ):
        await made_parts.writer.write(sample_run(finished=False).events)
        headers = {"Host": "localhost"}
        samples = await complete_series(client, **headers)

    assert samples["tracer_commit_duration_seconds_count", "events"] == 1
    assert samples["tracer_pool_connections", "idle"] >= 1
    assert samples["tracer_spool_events",] == 0
    assert samples["tracer_recorder_events_total", "dropped"] == 0
    assert samples["tracer_leases", "alive"] == 1
    assert samples["tracer_projection_backlog_bytes",] == 0
    assert samples["tracer_projection_lag_seconds",] == 0
    assert samples["tracer_projection_failures_total",] == 0
    assert samples["tracer_projectors",] in (0, 1)  # it may not be connected yet


async def test_metrics_without_a_database_lack_its_figures(tmp_path: Path) -> None:
    async with (
        parts_without_database(tmp_path) as away,
        client_of(away) as client,
    ):
        names = {name for name, *_ in await series(client)}

    assert "tracer_build_info" in names
    assert names.isdisjoint({"tracer_leases", "tracer_projectors"})


async def test_metrics_need_a_key_of_the_servers_own_project(
    database_url: str, tmp_path: Path
) -> None:
    async with two_projects(database_url, tmp_path) as doors:
        statuses = [
            (await doors.client.get("/metrics", headers=headers)).status_code
            for headers in (
                {},
                {"Authorization": f"Bearer {doors.other.secret}"},
                {"Authorization": f"Bearer {doors.home.secret}"},
            )
        ]

    assert statuses == [401, 403, 200]


async def test_metrics_page_lists_exactly_the_served_metrics(
    database_url: str, tmp_path: Path
) -> None:
    page = (DOCS / "reference" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(tracer_\w+)`", page, re.MULTILINE)
    async with server_parts(
        read_settings(home=tmp_path), database_url, ward.application
    ) as made_parts:
        samples = _names(made_parts, await server_metrics(made_parts, answer_seconds=60))

    assert sorted(rows) == sorted(samples)


def _names(made_parts: Parts, figures: list[Any]) -> list[str]:
    metrics: Metrics = create_app(made_parts).state.metrics
    families = [*metrics.registry.collect(), *figures]
    return [
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in families
        if family.name.startswith("tracer_")
    ]


async def test_metrics_of_a_server_on_a_newer_schema_omit_what_it_cannot_read(
    database_url: str, tmp_path: Path
) -> None:
    async with (
        serving_parts(database_url, tmp_path, ScriptedModel([])) as parts,
        client_of(parts) as client,
    ):
        with psycopg.connect(database_url) as connection:
            connection.execute("UPDATE alembic_version SET version_num = 'newer'")
            connection.execute("ALTER TABLE recorder_lease RENAME TO renamed")
        found = await series(client)

    assert "tracer_leases" not in {name for name, *_ in found}
    assert "tracer_build_info" in {name for name, *_ in found}
