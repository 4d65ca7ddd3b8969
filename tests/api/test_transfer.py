"""Runs as files: over the API and by the `tracer` command."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from tests.api.commands import Result, Tracer, serving_here
from tests.api.conftest import Api
from tests.contract.moments import Moments
from tests.otel.captured import spans_of
from tests.projecting import DatabaseProjection, project
from tests.sample_runs import sample_run
from tracer.otel.otlp.spans import encode_protobuf, root_plan_id
from tracer.records import new_id
from tracer.records.events import Event, event_json
from tracer.storage.postgres import connection_options


async def test_otlp_export_uses_the_encoding_of_the_accept_header(api: Api) -> None:
    run = await api.record(sample_run())
    path = f"/api/runs/{run.root}/export"

    answer = await api.get(path, format="otlp")
    as_json = await api.client.get(
        path, params={"format": "otlp"}, headers={"Accept": "application/json"}
    )

    assert answer.headers["content-type"] == "application/x-protobuf"
    parsed = TracesData.FromString(answer.content)
    assert as_json.headers["content-type"] == "application/json"
    assert len(parsed.resource_spans) == len(as_json.json()["resourceSpans"]) > 0


async def test_missing_run_cannot_be_exported(api: Api) -> None:
    for asked in ({}, {"format": "otlp"}):
        answer = await api.client.get(f"/api/runs/{new_id()}/export", params=asked)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    wrong = await api.get(f"/api/runs/{new_id()}/export", format="xml")
    assert wrong.status_code == 422


async def test_otlp_export_posted_again_gives_the_same_export(api: Api) -> None:
    spans = spans_of("pydantic-ai-default-single")
    await api.record_spans(spans)
    run_id = root_plan_id(spans[0].trace_id)
    path = f"/api/runs/{run_id}/export"
    file = (await api.get(path, format="otlp")).content

    answer = await api.client.post(
        "/v1/traces", content=file, headers={"Content-Type": "application/x-protobuf"}
    )

    assert answer.status_code == 200
    assert (await api.get(path, format="otlp")).content == file


@dataclass(frozen=True)
class Server:
    """A server, and the commands `export` and `import` with its address."""

    tracer: Tracer
    home: Path
    address: str
    database_url: str = ""

    def exports(self, *arguments: str) -> Result:
        return self.tracer(self.home, "export", *arguments, TRACER_URL=self.address)

    def imports(self, file: Path | str, stdin: bytes = b"") -> Result:
        return self.tracer(self.home, "import", str(file), stdin=stdin, TRACER_URL=self.address)

    def link(self) -> None:
        """Project pending runs, and link all runs."""

        async def link() -> None:
            projection = DatabaseProjection(connection_options(self.database_url))
            await project(projection)
            await projection.link()

        asyncio.run(link())

    def parts(self, run_id: object) -> object:
        return httpx2.get(f"{self.address}/api/runs/{run_id}").json()["parts"]

    def tree(self, run_id: object) -> Any:
        answer = httpx2.get(f"{self.address}/api/plans/{run_id}/tree?payloads=full")
        return {name: each for name, each in answer.json().items() if name != "revision"}


@pytest.fixture
def servers(
    tracer: Tracer, database_url: str, empty_database_url: str, tmp_path: Path
) -> Iterator[tuple[Server, Server]]:
    """Two servers, each with a database of its own."""
    with (
        serving_here(database_url, tmp_path / "one") as one,
        serving_here(empty_database_url, tmp_path / "other") as other,
    ):
        yield (
            Server(tracer, tmp_path, one, database_url),
            Server(tracer, tmp_path, other, empty_database_url),
        )


def test_runs_are_exported_from_one_server_and_imported_into_another(
    servers: tuple[Server, Server], tmp_path: Path
) -> None:
    here, there = servers
    run, spans = sample_run(), spans_of("pydantic-ai-default-single")
    trace = root_plan_id(spans[0].trace_id)
    events, protobuf = tmp_path / "events.jsonl", tmp_path / "spans"
    events.write_bytes(b"\n".join(map(event_json, run.events)))
    protobuf.write_bytes(encode_protobuf(spans))
    for file in (events, protobuf):
        assert here.imports(file).code == 0

    done = here.exports(str(run.root), "--output", str(events))
    assert done.code == 0, done.stderr
    lines = here.exports(str(trace)).stdout.encode()
    here.exports(str(trace), "--format", "otlp", "--output", str(protobuf))
    moved = [there.imports(events), there.imports("-", gzip.compress(lines))]
    moved.append(there.imports(protobuf))

    assert [each.code for each in moved] == [0, 0, 0], [each.stderr for each in moved]
    assert there.tree(run.root) == here.tree(run.root)
    assert there.exports(str(trace)).stdout.encode() == lines


def test_exported_piece_of_work_has_the_same_heads_where_it_is_imported(
    servers: tuple[Server, Server], tmp_path: Path
) -> None:
    here, there = servers
    spans = spans_of("pydantic-ai-default-single")
    first = root_plan_id(spans[0].trace_id)
    second, third = Moments(), Moments()
    in_a_year = 400 * 24 * 3600
    events: list[Event] = [
        second.plan_started(in_a_year, follows_runs=(first,)),
        second.plan_finished(in_a_year + 1),
        third.plan_started(in_a_year + 9, follows_runs=(second.root,)),
    ]
    file, otlp = tmp_path / "work.jsonl", tmp_path / "spans"
    file.write_bytes(b"\n".join(map(event_json, events)))
    otlp.write_bytes(encode_protobuf(spans))
    assert [here.imports(each).code for each in (file, otlp)] == [0, 0]
    here.link()
    assert here.parts(first) == 3

    here.exports(str(first), "--output", str(file))
    moved = there.imports(file)

    assert moved.code == 0, moved.stderr
    there.link()
    assert there.parts(first) == 3
    assert there.tree(first) == here.tree(first)


def test_import_stores_valid_lines_and_reports_the_others(
    servers: tuple[Server, Server], tmp_path: Path
) -> None:
    server, run = servers[0], sample_run()
    first, *rest = [event_json(event) + b"\n" for event in run.events]
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(b"".join([first, b"nonsense\n", b'{"type":"secret"}\n', *rest, first[:20]]))

    moved = server.imports(broken)

    assert moved.code == 1
    for number in (2, 3, len(rest) + 4):
        assert f"broken.jsonl, line {number}: " in moved.stderr
    assert "rejected items: 3" in moved.stderr
    assert server.tree(run.root)["status"] == "succeeded"


def test_missing_run_file_or_server_is_reported_in_a_sentence(
    servers: tuple[Server, Server], tmp_path: Path
) -> None:
    server = servers[0]
    unknown = server.exports(str(new_id()))
    nowhere = server.imports(tmp_path / "nothing")
    other = tmp_path / "other"
    other.write_text("hello")
    unreadable = server.imports(other)
    down = Server(server.tracer, tmp_path, "http://127.0.0.1:9").exports(str(new_id()))

    assert [each.code for each in (unknown, nowhere, unreadable, down)] == [3, 1, 1, 1]
    assert "There is no run" in unknown.stderr
    assert "Can't read" in nowhere.stderr
    assert "neither events nor OTLP" in unreadable.stderr
    assert "does not answer" in down.stderr
    assert "Traceback" not in unknown.stderr + nowhere.stderr + unreadable.stderr + down.stderr
