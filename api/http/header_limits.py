"""Limits on the size of request headers, and on the time until they have arrived.

Headers arrive before a client is authenticated, so any client can send them. uvicorn's default
parser, httptools, has no such limits. uvicorn's other parser, h11, limits the size, but answers 400
instead of 431. It does not limit the time either, and it is slow, because it is written in Python.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Any

from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from api.http.problems import problem_response

MAX_HEADER_BYTES = 64 * 2**10
"""The largest size of a request line and its headers, or of the trailers of a body."""

HEADER_SECONDS = 10.0
"""The longest time until all headers of a request have arrived, from the request's first byte or
from the start of the connection."""

_TOO_LARGE = problem_response(
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
    "headers_too_large",
    f"The request line and headers exceed {MAX_HEADER_BYTES} bytes. Send shorter headers.",
)
_TOO_SLOW = problem_response(
    HTTPStatus.REQUEST_TIMEOUT,
    "headers_too_slow",
    "The headers of the request arrived too slowly. Send the request again.",
)
_INVALID = problem_response(
    HTTPStatus.BAD_REQUEST, "invalid_http", "The request is not valid HTTP/1.1."
)


class _HeadersTooLarge(Exception):
    pass


class HeaderLimits(HttpToolsProtocol):
    """uvicorn's HTTP protocol, extended: large headers get 431, and slow headers get 408."""

    def __init__(self, *args: Any, header_seconds: float = HEADER_SECONDS, **options: Any) -> None:
        """Create the protocol of a connection. uvicorn passes `args` and `options`."""
        super().__init__(*args, **options)
        self._header_seconds = header_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._is_rejected = False
        self._header_bytes = 0
        """The size of the URL and of the complete headers and trailers of the request."""
        self._unparsed_bytes = 0
        """The number of bytes that the parser has not reported as headers or body yet. It collects
        a long header completely before it calls `on_header`."""
        self._is_in_body = False

    # asyncio declares the argument as `BaseTransport`; uvicorn narrows it, too.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_rejected:
            return
        self._unparsed_bytes += len(data)
        super().data_received(data)
        if self._unparsed_bytes > MAX_HEADER_BYTES:
            self._reject(_TOO_LARGE)
        elif self._unparsed_bytes and not self._is_in_body and self._timer is None:
            self._start_timer()

    def on_message_begin(self) -> None:
        self._header_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + len(b": \r\n"))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_timer()
        self._is_in_body = True
        self._unparsed_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unparsed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_body = False
        self._unparsed_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Reject the request. uvicorn calls this if its parser, or a callback of it, fails."""
        self._reject(_TOO_LARGE if self._header_bytes > MAX_HEADER_BYTES else _INVALID)

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > MAX_HEADER_BYTES:
            raise _HeadersTooLarge

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self._header_seconds, self._end_waiting)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _end_waiting(self) -> None:
        if self._is_rejected or not self._unparsed_bytes:
            self.transport.close()
        elif self._is_responding():
            self._start_timer()
        else:
            self._reject(_TOO_SLOW)

    def _is_responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _reject(self, response: Response) -> None:
        if self._is_rejected or self.transport.is_closing():
            return
        self._is_rejected = True
        self._stop_timer()
        if self._is_responding():  # the client would take a second response for a part of the first
            self.transport.close()
            return
        status = HTTPStatus(response.status_code)
        lines = [f"HTTP/1.1 {status.value} {status.phrase}".encode(), b"connection: close"]
        lines += [name + b": " + value for name, value in response.raw_headers]
        self.transport.write(b"\r\n".join([*lines, b"", bytes(response.body)]))
        # Closing with unread bytes resets the connection, and the client may lose the response.
        # The rest of the request is discarded until the client closes, or the time is over.
        self.transport.write_eof()
        self._start_timer()
