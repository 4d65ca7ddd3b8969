"""The `tracer export` and `tracer import` commands, which work over HTTP."""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NamedTuple, TypeVar

import httpx2
import orjson
import typer

from tracer.cli.http import check, run_id_of, server_of
from tracer.cli.terminal import console, counted, run_command
from tracer.clock import utc_now
from tracer.errors import BadRequest, missing_extra
from tracer.questions.asked import moment_of
from tracer.settings import Settings

BATCH_BYTES = 4_000_000
"""The approximate size of a request of an import."""

_IS_JSON = re.compile(rb"(\xef\xbb\xbf)?\s*\{\s*\"")
_IS_OTLP_JSON = re.compile(rb'(\xef\xbb\xbf)?\s*\{\s*"resource(Spans|Logs)"')
_END = re.compile(rb'"end": ?true, ?"unreadableBlocks": ?([0-9]+)\}\s*$')
"""The end of a complete export."""
_END_BYTES = 100
_PATHS = {"resourceSpans": "v1/traces", "resourceLogs": "v1/logs"}

T = TypeVar("T")


class Format(StrEnum):
    """The format of an export."""

    JSONL = "jsonl"
    OTLP = "otlp"


class Part(NamedTuple):
    """A part of a file, as a request."""

    path: str
    media_type: str
    body: bytes
    lines: tuple[int, ...] = ()
    """The line of each event."""


def export_run(
    run_id: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="A handle, or the id of the run.")
    ] = None,
    wanted: Annotated[
        Format, typer.Option("--format", help="JSON lines, or OpenTelemetry's protobuf.")
    ] = Format.JSONL,
    output: Annotated[
        Path | None,
        typer.Option(help="The file to write; standard output if omitted. Of several: a folder."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Export all runs since then: 24h, 7d, or RFC 3339.")
    ] = None,
    is_failed: Annotated[bool, typer.Option("--failed", help="Of these, the failed runs.")] = False,
) -> None:
    """Export runs of the server at TRACER_URL. `tracer import` reads the files."""

    async def run(settings: Settings) -> None:
        if output is None and wanted is Format.OTLP and sys.stdout.isatty():
            raise BadRequest(
                "OTLP is binary, and the output is a terminal. Pass --output FILE, or pipe the "
                "output to a program."
            )
        if (run_id is None) == (since is None):
            raise typer.BadParameter("Name one run, or pass --since and --output FOLDER.")
        async with server_of(settings) as server:
            if run_id is not None:
                await _export(server, await run_id_of(server, run_id), wanted, output)
                return
            if output is None:
                raise typer.BadParameter("Pass --output FOLDER: each run becomes a file.")
            output.mkdir(parents=True, exist_ok=True)
            count = 0
            async for each in _runs(server, since, is_failed=is_failed):
                await _export(server, each, wanted, output / f"{each}.{wanted.value}")
                count += 1
        console.print(f"{counted(count, 'run')} in {output}.", markup=False)

    run_command(run)


async def _runs(
    server: httpx2.AsyncClient, since: str | None, *, is_failed: bool
) -> AsyncIterator[str]:
    """Yield the ids of runs since a time, latest first."""
    wanted = {"from": str(moment_of(since, utc_now())), "limit": "200"}
    wanted |= {"status": "failed"} if is_failed else {}
    while True:
        answer = await server.get("api/runs", params=wanted)
        await check(answer)
        page = answer.json()
        for each in page["items"]:
            yield each["rootPlanId"]
        if page["nextCursor"] is None:
            return
        wanted["cursor"] = page["nextCursor"]


async def _export(
    server: httpx2.AsyncClient, run_id: str, wanted: Format, output: Path | None
) -> None:
    """Write a run to a file."""
    path = f"api/runs/{run_id}/export"
    async with server.stream("GET", path, params={"format": wanted.value}) as answer:
        await check(answer)
        last = b""
        with _written_to(output) as file:
            async for part in answer.aiter_bytes():
                file.write(part)
                last = (last + part)[-_END_BYTES:]
    end = _END.search(last)
    if end is None:
        raise BadRequest(
            "The export is incomplete, because the server ended it early. Export the run again."
        )
    if int(end[1]):
        console.print(f"Damaged blocks of spans that are left out: {int(end[1])}.", style="red")


def import_files(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Files to read; - is standard input.")
    ],
) -> None:
    """Send files of events or OTLP to the server at TRACER_URL. Files may be compressed with gzip.

    The server merges them with stored data, so sending a file again changes nothing.
    """

    async def run(settings: Settings) -> None:
        counts = Counter[str]()
        async with server_of(settings) as server:
            for path in files:
                with _read_from(path) as file:
                    for part in parts_of(file):
                        counts.update(await _send(server, part, path.name))
        console.print(f"Requests: {counts['sent']}, rejected items: {counts['refused']}.")
        if counts["refused"]:
            raise typer.Exit(1)

    run_command(run)


def parts_of(file: io.BufferedReader) -> Iterator[Part]:
    """Yield the requests that send a file's content.

    Args:
        file: One of: events as JSON lines, OTLP/JSON documents on one or more lines, or one
            protobuf message.

    Raises:
        BadRequest: The file has another format, or ends early.
    """
    head = file.peek(64)
    try:
        if head.startswith(b"\x1f\x8b"):
            yield from parts_of(io.BufferedReader(gzip.GzipFile(fileobj=file)))
        elif _IS_JSON.match(head):
            yield from _of_lines(file, is_event=not _IS_OTLP_JSON.match(head))
        else:
            yield from _of_protobuf(file.read())
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise BadRequest("The file is damaged or ends early.") from None


def _of_lines(file: BinaryIO, *, is_event: bool) -> Iterator[Part]:
    """Yield the requests for lines of events and of OTLP/JSON documents.

    A document on several lines must be the only one.
    """
    first = file.readline().removeprefix(b"\xef\xbb\xbf")
    is_one_line = is_event or first.rstrip().endswith(b"}")
    texts = chain([first], file) if is_one_line else [first + file.read()]
    lines = ((len(line), (number, line)) for number, line in enumerate(texts, 1) if line.strip())
    for batch in _batches(lines):
        documents = [_document(*line) for line in batch if _IS_OTLP_JSON.match(line[1])]
        events = [line for line in batch if not _IS_OTLP_JSON.match(line[1])]
        if documents:
            events = [line for line in events if not _END.search(line[1])]
        for name, path in _PATHS.items():
            if items := [item for document in documents for item in document.get(name) or ()]:
                yield Part(path, "application/json", orjson.dumps({name: items}))
        if events:
            numbers, body = zip(*events, strict=True)
            yield Part("api/events", "application/x-ndjson", b"".join(body), numbers)


def _document(number: int, text: bytes) -> dict[str, Any]:
    try:
        return dict(orjson.loads(text))
    except orjson.JSONDecodeError:
        raise BadRequest(f"Line {number} is not JSON. The lines before it were sent.") from None


def _of_protobuf(content: bytes) -> Iterator[Part]:
    try:
        from google.protobuf.message import DecodeError
        from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
        from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

        from tracer.otel.otlp.spans import StoredMessage
    except ModuleNotFoundError as error:
        raise BadRequest(str(missing_extra("tracer import", "otel", error))) from error
    try:
        message = StoredMessage.FromString(content)
    except DecodeError:
        message = StoredMessage()
    if not message.resource_spans and not message.resource_logs:
        raise BadRequest("The file contains neither events nor OTLP.")
    for batch in _batches((each.ByteSize(), each) for each in message.resource_spans):
        body = TracesData(resource_spans=batch).SerializeToString()
        yield Part("v1/traces", "application/x-protobuf", body)
    for records in _batches((each.ByteSize(), each) for each in message.resource_logs):
        body = LogsData(resource_logs=records).SerializeToString()
        yield Part("v1/logs", "application/x-protobuf", body)


def _batches(items: Iterable[tuple[int, T]]) -> Iterator[list[T]]:
    """Yield items in lists of about `BATCH_BYTES`, by the sizes that are given with the items."""
    batch: list[T] = []
    size = 0
    for item_size, item in items:
        batch.append(item)
        size += item_size
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


async def _send(server: httpx2.AsyncClient, part: Part, file: str) -> dict[str, int]:
    """Send a part of a file, and print what the server rejects. Return the counts."""
    headers = {"Content-Type": part.media_type, "Content-Encoding": "gzip"}
    answer = await server.post(part.path, content=gzip.compress(part.body, 1), headers=headers)
    await check(answer)
    if part.lines:
        refused = answer.json()["refused"]
        reasons = [f"line {part.lines[each['index']]}: {each['detail']}" for each in refused]
        count = len(refused)
    else:
        count, reasons = _rejected(part, answer.content)
    for reason in reasons:
        console.print(f"{file}, {reason}", style="red", markup=False)
    return {"sent": 1, "refused": count}


def _rejected(part: Part, answer: bytes) -> tuple[int, list[str]]:
    """Return how many spans or log records an OTLP response rejects, and why."""
    if part.media_type == "application/json":
        partial = orjson.loads(answer).get("partialSuccess") or {}
        count = int(partial.get("rejectedSpans") or partial.get("rejectedLogRecords") or 0)
        return count, [partial["errorMessage"]] if count else []
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    # The response for log records has the same fields, with the same numbers.
    success = ExportTraceServiceResponse.FromString(answer).partial_success
    return success.rejected_spans, [success.error_message] if success.rejected_spans else []


@contextmanager
def _written_to(path: Path | None) -> Iterator[BinaryIO]:
    """Open the file at `path` for writing; standard output if `path` is None."""
    try:
        if path is None:
            yield sys.stdout.buffer
            sys.stdout.buffer.flush()
        else:
            with path.open("wb") as file:
                yield file
    except BrokenPipeError:
        # The reader closed the pipe. Python would fail again at exit, when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except OSError as error:
        raise BadRequest(f"Can't write {path}: {error.strerror}.") from error


@contextmanager
def _read_from(path: Path) -> Iterator[io.BufferedReader]:
    """Open the file at `path` for reading; standard input if `path` is `-`."""
    if str(path) == "-":
        stream: Any = io.BufferedReader(sys.stdin.buffer)
        yield stream
        stream.detach()
        return
    try:
        file = path.open("rb")
    except OSError as error:
        raise BadRequest(f"Can't read {path}: {error.strerror}.") from error
    with file:
        yield file
