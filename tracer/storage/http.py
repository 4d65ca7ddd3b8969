"""The store of another process: a writer that sends events and spans to a server over HTTP."""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import sys
import zlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from http import HTTPStatus
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote
from uuid import UUID

import httpx2
import orjson
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from tracer.errors import (
    BadRequest,
    RecordNotFound,
    RunNotActive,
    SchemaOutOfDate,
    StoreUnavailable,
)
from tracer.records import ABANDONED, Lease, Run, Status
from tracer.records.events import PROTOCOL_HEADER, PROTOCOL_VERSION, Event, event_json
from tracer.redaction import Redaction, standard_redaction
from tracer.store import Erasure, Exchange, Refusal, WriteAnswer
from tracer.text import storable

if TYPE_CHECKING:
    from tracer.otel.otlp import Signal
    from tracer.records.spans import TraceSpans

# --- Write to a tracer server over HTTP, for programs without a database connection.

CONNECT_SECONDS = 2.0
"""How long a write may wait for a server that is down."""

ANSWER_SECONDS = 30.0
"""How long the server may take to answer, or to receive the next chunk of a request."""

PACKED_BYTES = 16 * 2**10
"""The size from which a request is compressed."""

CANCEL_REQUESTS_AT_ONCE = 100
"""The most run ids that one request for cancel requests contains: they are in its URL."""

_OTLP = "application/x-protobuf"
_SLICE_BYTES = 64 * 2**10
_DETAIL_CHARACTERS = 200
"""The length to which a server's explanation is cut in errors and logs."""

_CHECK_ADDRESS = "Check that the server runs and that TRACER_URL is its address."
_CHECK_KEY = (
    "Set TRACER_API_KEY to a key with the scope `record`. On the server, `tracer keys create NAME "
    "--scope record` creates one."
)

_ENDED = {status for status in Status if status.is_ending}

Sent = TypeVar("Sent")
Numbered = tuple[int, Sent]
"""An item with its index: an event as JSON, or the spans of a trace with the index of the first
span."""


class _CancelRequests(BaseModel):
    root_plan_ids: set[UUID] = Field(alias="rootPlanIds")


class _Lease(BaseModel):
    recorder_id: UUID = Field(alias="recorderId")
    seen_at: datetime = Field(alias="seenAt")
    length: timedelta = Field(alias="leaseSeconds")


class _Plan(BaseModel):
    status: str
    user_request: str | None = Field(alias="userRequest")
    summary: str | None


class _Problem(BaseModel):
    code: str
    detail: str = ""


class _RefusedAsAWhole(Exception):
    """The server rejects a request as a whole, but may accept its items in smaller ones."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(code)
        self.code = code
        self.detail = detail


_ANSWER = TypeAdapter(WriteAnswer)
_ERASURE = TypeAdapter(Erasure)


class HttpWriter:
    """`tracer.store.TraceWriter` over the REST API, and the reads that `RunLauncher` needs.

    The writer does not retry, because the recorder does. The writer ignores the proxy settings of
    the environment. To use a proxy, pass a `transport` that has one.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        transport: httpx2.AsyncBaseTransport | None = None,
        redaction: Redaction | None = None,
    ) -> None:
        """Set the server's address. No connection is opened yet.

        Args:
            url: The server's address, such as `http://127.0.0.1:8420`.
            api_key: Sent with each request; needed if the server requires a key.
            transport: Sends the requests; None: the writer opens its own connections.
            redaction: Masks secrets in spans; None: the standard rules. Events are masked by their
                recorder.
        """
        self._redaction = redaction or standard_redaction()
        self._url = url
        self._has_key = api_key is not None
        self._client = httpx2.AsyncClient(
            base_url=url,
            headers={
                PROTOCOL_HEADER: str(PROTOCOL_VERSION),
                **({} if api_key is None else {"Authorization": f"Bearer {api_key}"}),
            },
            timeout=httpx2.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
            trust_env=False,
            transport=transport or httpx2.AsyncHTTPTransport(verify=_ssl_context(url)),
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        """Store `events`."""
        refused: list[Refusal] = []
        lines: list[Numbered[bytes]] = []
        for index, event in enumerate(events):
            try:
                lines.append((index, event_json(event)))
            except ValueError as error:
                detail = f"The event cannot be written as JSON: {type(error).__name__}."
                refused.append(Refusal(index, "not_storable", detail))
        refused += await self._write_or_halve(lines, self._write, lambda line: [line])
        return WriteAnswer.without(refused, events)

    async def write_spans(self, traces: Sequence[TraceSpans]) -> WriteAnswer:
        """Store OpenTelemetry spans."""
        from tracer.otel.otlp import LOGS, SPANS, by_signal, redacted_traces

        sent: dict[Signal, list[Numbered[TraceSpans]]] = {SPANS: [], LOGS: []}
        count = 0
        for trace in redacted_traces(traces, self._redaction):
            for signal, part in by_signal(trace):
                sent[signal].append((count, part))
                count += part.count
        refused: list[Refusal] = []
        for signal, parts in sent.items():
            write = partial(self._write_items, signal)
            refused += await self._write_or_halve(parts, write, _single_items)
        return WriteAnswer.without(refused, range(count))

    async def _write_or_halve(
        self,
        sent: list[Numbered[Sent]],
        write: Callable[[list[Numbered[Sent]]], Awaitable[list[Refusal]]],
        parts_of: Callable[[Numbered[Sent]], list[Numbered[Sent]]],
    ) -> list[Refusal]:
        """Write `sent` in one request, or in smaller ones if the server rejects it as a whole.

        Args:
            sent: The items to write, in order.
            write: Sends one request and returns the refusals.
            parts_of: Divides a single item that the server rejected. An item that cannot be divided
                is returned unchanged.
        """
        if not sent:
            return []
        try:
            return await write(sent)
        except _RefusedAsAWhole as refusal:
            if len(sent) == 1:
                sent = parts_of(sent[0])
            if len(sent) == 1:
                return [Refusal(sent[0][0], refusal.code, refusal.detail)]
        middle = len(sent) // 2
        return [
            *await self._write_or_halve(sent[:middle], write, parts_of),
            *await self._write_or_halve(sent[middle:], write, parts_of),
        ]

    async def _write(self, lines: list[Numbered[bytes]]) -> list[Refusal]:
        body = b"\n".join(line for _, line in lines)
        response = await self._post("api/events", body, "application/x-ndjson")
        content = self._content(response, HTTPStatus.OK)
        try:
            answer = _ANSWER.validate_json(content)
            return [
                Refusal(lines[each.index][0], each.code, each.detail) for each in answer.refused
            ]
        except (ValidationError, IndexError) as error:
            raise self._unexpected(response) from error

    async def _write_items(self, signal: Signal, sent: list[Numbered[TraceSpans]]) -> list[Refusal]:
        from google.protobuf.message import DecodeError

        from tracer.otel.otlp import request_of

        # Concatenated protobuf messages are one message with the items of all.
        body = request_of(signal, b"".join([trace.message for _, trace in sent]))
        response = await self._post(f"v1/{signal.name}s", body, _OTLP)
        content = self._content(response, HTTPStatus.OK)
        try:
            refused = signal.response_type.FromString(content).partial_success
        except DecodeError as error:
            raise self._unexpected(response) from error
        rejected = getattr(refused, signal.rejected)
        if not rejected:
            return []
        # OTLP has one text for all rejected items and no field for codes: see `api.otlp.routes`.
        matches = [_REASON.fullmatch(line) for line in refused.error_message.splitlines()]
        indexes = [first + offset for first, trace in sent for offset in range(trace.count)]
        try:
            reasons = [
                Refusal(indexes[int(each["number"] or 0)], each["code"], each["detail"])
                for each in matches
                if each is not None
            ]
        except IndexError as error:
            raise self._unexpected(response) from error
        if len(reasons) == rejected:
            return reasons
        if not reasons:
            raise self._unexpected(response)
        # The message names only the first ones.
        if len(sent) == 1 and rejected == len(indexes) and _have_one_code(reasons):
            return [replace(reasons[0], index=index) for index in indexes]
        raise _RefusedAsAWhole(reasons[0].code, reasons[0].detail)

    async def _post(self, path: str, body: bytes, content_type: str) -> httpx2.Response:
        headers = {"Content-Type": content_type}
        if len(body) >= PACKED_BYTES:
            body = await _packed(body)
            headers["Content-Encoding"] = "gzip"
        response = await self._ask("POST", path, content=body, headers=headers)
        if response.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            raise _RefusedAsAWhole("too_large", "The server rejects a request of this size.")
        # An OTLP response has no code, but this is the only reason for a 422.
        is_otlp = response.headers.get("content-type") == content_type == _OTLP
        if response.status_code == HTTPStatus.UNPROCESSABLE_ENTITY and (
            is_otlp or _code(response) == "too_many_secrets"
        ):
            raise _RefusedAsAWhole(
                "too_many_secrets",
                "The request contains more secrets than the server can mask in one request.",
            )
        return response

    async def renew(self, recorder_id: UUID) -> Lease:
        """Renew a recorder's lease."""
        response = await self._ask("POST", f"api/recorders/{recorder_id}/lease")
        content = self._content(response, HTTPStatus.OK)
        try:
            return Lease(**_Lease.model_validate_json(content).model_dump())
        except ValidationError as error:
            raise self._unexpected(response) from error

    async def delete_run(self, root_plan_id: UUID, *, all_parts: bool = True) -> None:
        """Delete a run and leave a tombstone."""
        parts = {"parts": "all" if all_parts else "own"}
        response = await self._ask("DELETE", f"api/runs/{root_plan_id}", params=parts)
        if _code(response) == "not_found":
            raise RecordNotFound("run", root_plan_id)
        self._content(response, HTTPStatus.NO_CONTENT)

    async def delete_subject(self, subject: str) -> Erasure:
        """Delete every run of a subject."""
        response = await self._ask("DELETE", "api/subjects", params={"subject": storable(subject)})
        return self._erasure(response)

    async def delete_session(self, session_id: str) -> Erasure:
        """Delete every run of a session."""
        path = f"api/sessions/{quote(storable(session_id), safe='')}"
        return self._erasure(await self._ask("DELETE", path))

    def _erasure(self, response: httpx2.Response) -> Erasure:
        if (problem := _problem(response)) is not None and problem.code == "bad_request":
            raise BadRequest(problem.detail)
        try:
            return _ERASURE.validate_json(self._content(response, HTTPStatus.OK))
        except ValidationError as error:
            raise self._unexpected(response) from error

    async def request_cancel(self, root_plan_id: UUID) -> Run:
        """Record a request to cancel a run, and return the run."""
        response = await self._ask("POST", f"api/runs/{root_plan_id}/cancel")
        match _code(response):
            case "not_found":
                raise RecordNotFound("run", root_plan_id)
            case "run_not_active":
                raise RunNotActive()
        content = self._content(response, HTTPStatus.ACCEPTED)
        try:
            return _run(content)
        except ValueError as error:
            raise self._unexpected(response) from error

    async def find_cancel_requests(self, root_plan_ids: Collection[UUID]) -> set[UUID]:
        """Return which of the given runs have a request to be cancelled or deleted.

        Raises:
            StoreUnavailable: The server does not answer.
        """
        to_cancel: set[UUID] = set()
        ids = [str(each) for each in root_plan_ids]
        for begin in range(0, len(ids), CANCEL_REQUESTS_AT_ONCE):
            some = ids[begin : begin + CANCEL_REQUESTS_AT_ONCE]
            response = await self._ask("GET", "api/cancel-requests", params={"rootPlanId": some})
            content = self._content(response, HTTPStatus.OK)
            try:
                to_cancel |= _CancelRequests.model_validate_json(content).root_plan_ids
            except ValidationError as error:
                raise self._unexpected(response) from error
        return to_cancel

    async def list_exchanges(self, root_plan_ids: Sequence[UUID]) -> list[Exchange]:
        """Return the requests and answers of runs that have ended.

        Takes one request for each run, and a key with the `read` scope.

        Raises:
            StoreUnavailable: The server does not answer, or rejects the key.
        """
        exchanges = []
        for run_id in root_plan_ids:
            response = await self._ask("GET", f"api/plans/{run_id}")
            if _code(response) == "not_found":
                continue
            content = self._content(response, HTTPStatus.OK)
            try:
                plan = _Plan.model_validate_json(content)
            except ValidationError as error:
                raise self._unexpected(response) from error
            if plan.status in _ENDED and plan.user_request is not None:
                answer = plan.summary if plan.status == Status.SUCCEEDED else None
                exchanges.append(Exchange(run_id, plan.user_request, answer))
        return exchanges

    async def _ask(self, method: str, path: str, **request: Any) -> httpx2.Response:
        try:
            return await self._client.request(method, path, **request)
        except httpx2.HTTPError as error:
            raise self._unavailable(connection_problem(error), _CHECK_ADDRESS) from error

    def _unavailable(self, problem: str, what_to_do: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"The server at {self._url} cannot be used: {problem}. {what_to_do}",
            problem=problem,
            what_to_do=what_to_do,
            address=self._url,
        )

    def _unexpected(self, response: httpx2.Response) -> StoreUnavailable:
        """Return the error for a response that does not state the result of each event.

        The server may have stored the events nevertheless.
        """
        status = response.status_code
        problem = _problem(response)
        detail = "" if problem is None else problem.detail[:_DETAIL_CHARACTERS].rstrip(".")
        what_to_do = "Check the server's log."
        match status:
            case HTTPStatus.UNAUTHORIZED if not self._has_key:
                detail, what_to_do = "the server requires a key and none was sent", _CHECK_KEY
            case HTTPStatus.UNAUTHORIZED:
                detail, what_to_do = "the server does not accept this key", _CHECK_KEY
            case HTTPStatus.FORBIDDEN:
                detail, what_to_do = detail or "the server does not allow this key", _CHECK_KEY
            case HTTPStatus.TOO_MANY_REQUESTS:
                what_to_do = "Wait: the recorder will retry."
            case _ if problem is None:
                detail, what_to_do = "the response is not from a tracer server", _CHECK_ADDRESS
        return self._unavailable(f"{status}: {detail}", what_to_do)

    def _content(self, response: httpx2.Response, wanted: HTTPStatus) -> bytes:
        """Return a response's content.

        Raises:
            SchemaOutOfDate: The server's database lacks migrations.
            StoreUnavailable: The response's status is not `wanted`.
        """
        if response.status_code == wanted:
            return response.content
        if _code(response) == "schema_out_of_date":
            raise SchemaOutOfDate()
        raise self._unexpected(response)


def _ssl_context(url: str) -> ssl.SSLContext:
    """Return an SSL context that trusts the system's certificates.

    For plain HTTP the context has no certificates, because reading them takes a tenth of the time
    of `tracer.connect()`.
    """
    if url.startswith("https:"):
        return ssl.create_default_context()
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


_REASON = re.compile(r"(?P<code>\w+): (?P<detail>.*?)(?: \((?:span|log record) (?P<number>\d+)\))?")


def _have_one_code(refused: Sequence[Refusal]) -> bool:
    return len({each.code for each in refused}) == 1


def _single_items(sent: Numbered[TraceSpans]) -> list[Numbered[TraceSpans]]:
    from tracer.otel.otlp.blocks import single_spans

    first, trace = sent
    return list(enumerate(single_spans(trace), first))


async def _packed(body: bytes) -> bytes:
    """Return `body` as gzip, without blocking the event loop for long."""
    packer = zlib.compressobj(level=1, wbits=16 + zlib.MAX_WBITS)
    packed = []
    for begin in range(0, len(body), _SLICE_BYTES):
        packed.append(packer.compress(body[begin : begin + _SLICE_BYTES]))
        # Not in a thread: tools that wait for this recorder may occupy all threads.
        await asyncio.sleep(0)
    return b"".join([*packed, packer.flush()])


def connection_problem(error: httpx2.HTTPError) -> str:
    """Return a short description of what happened to a request."""
    if isinstance(error, httpx2.ConnectTimeout):
        return f"no connection within {CONNECT_SECONDS:g} s"
    if isinstance(error, httpx2.TimeoutException):
        return f"no answer within {ANSWER_SECONDS:g} s"
    cause = _system_error(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return f"the TLS certificate was rejected: {cause.verify_message}"
    if isinstance(cause, ssl.SSLError):
        return f"the TLS connection failed: {cause.reason}"
    if isinstance(cause, socket.gaierror):
        return f"the name {error.request.url.host!r} cannot be resolved"
    if cause is not None and cause.errno is not None:
        return os.strerror(cause.errno).lower()  # asyncio's own text repeats the address
    if isinstance(error, httpx2.RemoteProtocolError):
        return "the server closed the connection, or does not speak HTTP"
    return f"the connection failed ({type(error).__name__})"


def _system_error(error: BaseException | None) -> OSError | None:
    """Return the operating system's error that caused another one."""
    while error is not None:
        if isinstance(error, BaseExceptionGroup):  # one for each address of a name
            error = error.exceptions[0]
        elif isinstance(error, OSError) and error.errno:
            return error
        else:
            error = error.__cause__ or error.__context__
    return None


def _code(response: httpx2.Response) -> str | None:
    """Return the problem code of a response; None if it has none."""
    problem = _problem(response)
    return None if problem is None else problem.code


def _problem(response: httpx2.Response) -> _Problem | None:
    if not response.headers.get("content-type", "").startswith("application/problem+json"):
        return None
    try:
        return _Problem.model_validate_json(response.content)
    except ValidationError:
        return None


def _run(content: bytes) -> Run:
    sent = orjson.loads(content)
    fields = {name: sent[to_camel(name)] for name in Run.model_fields if to_camel(name) in sent}
    if fields.get("status") == ABANDONED:
        fields["status"] = Status.RUNNING  # the API shows an open run this way
    if fields.get("cost_usd") is None:  # no cost is known: `unpriced_calls` says so
        fields["cost_usd"] = 0
    return Run.model_validate(fields)


# --- An HTTP writer that prints the address of the first run that the server has stored.

_stored = count()
"""Counts the stored writes of the process. A counter needs no lock."""


class AnnouncingWriter(HttpWriter):
    """Prints one line to standard error, once per process, if standard error is a terminal."""

    async def write(self, events: Sequence[Event]) -> WriteAnswer:
        """Store `events`."""
        answer = await super().write(events)
        if answer.stored:
            self._announce(events[0].root_plan_id)
        return answer

    async def write_spans(self, traces: Sequence[TraceSpans]) -> WriteAnswer:
        """Store OpenTelemetry spans."""
        answer = await super().write_spans(traces)
        if answer.stored:
            self._announce(UUID(bytes=traces[0].trace_id))
        return answer

    def _announce(self, run_id: UUID) -> None:
        if next(_stored) == 0:
            with suppress(Exception):  # standard error may be closed or replaced
                if sys.stderr.isatty():
                    sys.stderr.write(f"tracer: recording to {self._url}/runs/{run_id}\n")
