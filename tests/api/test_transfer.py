"""Runs as files: over the API and by the `tracer` command."""

from __future__ import annotations

import asyncio
import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import httpx2
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from tests.api.commands import Result, Tracer
from tests.api.conftest import Api
from tests.contract.stores import memory_stores, serving
from tests.contract.transfers import export_of
from tests.otel.captured import spans_of
from tests.sample_runs import SampleRun, sample_run
from tracer.otel.otlp.blocks import traces_of
from tracer.otel.otlp.span_fields import root_plan_id
from tracer.records.ids import new_id
from tracer.storage.postgres.connection.pool import open_pool
from tracer.storage.postgres.connection.project_session import ProjectPool
from tracer.storage.postgres.reader import PostgresReader
from tracer.storage.postgres.writer import PostgresWriter
from tracer.transfer.exporting import Format


@pytest.fixture
def run(database_url: str) -> SampleRun:
    """A run in the database."""
    sample = sample_run()

    async def write() -> None:
        async with open_pool(database_url) as pool:
            await PostgresWriter(ProjectPool(pool)).write(sample.events)

    asyncio.run(write())
    return sample


def exported(database_url: str, run_id: UUID, wanted: Format = Format.JSONL) -> bytes:
    """Return the export of a run, made without the command."""

    async def export() -> bytes:
        async with open_pool(database_url) as pool:
            return await export_of(PostgresReader(ProjectPool(pool)), run_id, wanted)

    return asyncio.run(export())


@dataclass(frozen=True)
class Database:
    """The commands `export` and `import` on one database."""

    tracer: Tracer
    home: Path
    url: str

    def exports(self, *arguments: str) -> Result:
        return self.tracer(self.home, "export", *arguments, TRACER_DATABASE_URL=self.url)

    def imports(self, file: Path | str, stdin: bytes = b"") -> Result:
        return self.tracer(
            self.home, "import", str(file), stdin=stdin, TRACER_DATABASE_URL=self.url
        )


@pytest.fixture
def source(tracer: Tracer, database_url: str, tmp_path: Path) -> Database:
    return Database(tracer, tmp_path, database_url)


@pytest.fixture
def target(tracer: Tracer, empty_database_url: str, tmp_path: Path) -> Database:
    return Database(tracer, tmp_path, empty_database_url)


async def test_export_returns_a_run_as_json_lines(api: Api) -> None:
    run = await api.record(sample_run())

    answer = await api.get(f"/api/runs/{run.root}/export")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["content-disposition"] == f'attachment; filename="{run.root}.jsonl"'
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["kind"] for line in lines] == sorted(
        (line["kind"] for line in lines),
        key=["run", "plan", "step", "thinkAct", "toolCall", "span"].index,
    )
    shown = await api.read(f"/api/tool-calls/{run.failed_call}")
    [line] = [each for each in lines if each.get("toolCallId") == str(run.failed_call)]
    assert line["error"] == shown["error"]
    assert {name: shown[name] for name in line if name in shown} == {
        name: value for name, value in line.items() if name in shown
    }


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


@pytest.mark.parametrize(
    ("accepted", "media_type"),
    [("*/*", "application/x-protobuf"), ("application/json", "application/json")],
)
async def test_otlp_export_gives_the_same_tree_on_another_server(
    api: Api, accepted: str, media_type: str
) -> None:
    run = await api.record(sample_run())
    path = f"/api/runs/{run.root}/export?format=otlp"
    file = (await api.client.get(path, headers={"Accept": accepted})).content
    transport = serving(memory_stores()())
    async with httpx2.AsyncClient(transport=transport, base_url="http://tracer") as other:
        posted = await other.post("/v1/traces", content=file, headers={"Content-Type": media_type})
        again = await other.get(path, headers={"Accept": accepted})
        trees = [
            (await client.get(f"/api/plans/{run.root}/tree?payloads=full")).json()
            for client in (api.client, other)
        ]

    assert posted.status_code == 200, posted.text
    assert again.content == file
    for tree in trees:
        del tree["revision"]
    assert trees[1] == trees[0]


async def test_missing_run_cannot_be_exported(api: Api) -> None:
    for asked in ({}, {"format": "otlp"}):
        answer = await api.client.get(f"/api/runs/{new_id()}/export", params=asked)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    wrong = await api.get(f"/api/runs/{new_id()}/export", format="xml")
    assert wrong.status_code == 422


@pytest.mark.parametrize(
    "wanted",
    [Format.JSONL, Format.OTLP, pytest.param(Format.OTLP_JSON, marks=pytest.mark.thorough)],
)
def test_exported_file_is_imported_into_another_database(
    run: SampleRun, source: Database, target: Database, tmp_path: Path, wanted: Format
) -> None:
    file = tmp_path / "run"
    done = source.exports(str(run.root), "--format", wanted, "--output", str(file))
    assert done.code == 0, done.stderr
    assert file.read_bytes() == exported(source.url, run.root, wanted)

    moved = target.imports(file)

    assert moved.code == 0, moved.stderr
    assert exported(target.url, run.root, wanted) == file.read_bytes()


def test_compressed_export_is_imported_from_standard_input(
    run: SampleRun, source: Database, target: Database
) -> None:
    done = source.exports(str(run.root))
    assert done.code == 0, done.stderr

    moved = target.imports("-", gzip.compress(done.stdout.encode()))

    assert moved.code == 0, moved.stderr
    assert "rejected: 0" in moved.stderr
    assert exported(target.url, run.root) == done.stdout.encode()


def test_import_stores_valid_lines_and_reports_line_numbers_of_invalid_ones(
    run: SampleRun, source: Database, target: Database, tmp_path: Path
) -> None:
    file = exported(source.url, run.root)
    first, *rest = file.splitlines(keepends=True)
    bad = [
        b"nonsense\n",
        b'{"kind":"secret"}\n',
        rest[0].replace(b'"position":0', b'"position":-1'),
    ]
    broken = tmp_path / "broken.jsonl"
    broken.write_bytes(b"".join([first, *bad, *rest, first[:20]]))

    moved = target.imports(broken)

    assert moved.code == 1
    for number in (2, 3, 4, len(rest) + 5):
        assert f"line {number}: " in moved.stderr
    assert "rejected: 4" in moved.stderr
    assert exported(target.url, run.root) == file


def test_export_includes_records_of_pending_spans(source: Database) -> None:
    spans = spans_of("pydantic-ai-default-single")

    async def accept() -> None:
        async with open_pool(source.url) as pool:
            await PostgresWriter(ProjectPool(pool)).write_spans(traces_of(spans))

    asyncio.run(accept())

    done = source.exports(str(root_plan_id(spans[0].trace_id)))

    assert (done.code, done.stderr) == (0, "")
    assert done.stdout.count('"kind":"toolCall"') == 8


def test_unknown_run_and_unreadable_file_are_reported_in_a_sentence(
    source: Database, tmp_path: Path
) -> None:
    missing = source.exports(str(new_id()))
    nowhere = source.imports(tmp_path / "nothing")

    assert (missing.code, nowhere.code) == (1, 1)
    assert "There is no run" in missing.stderr
    assert "Can't read" in nowhere.stderr
    assert "Traceback" not in missing.stderr + nowhere.stderr


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
