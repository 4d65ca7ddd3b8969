"""The result of a REST tool, or its error, from an HTTP response."""

from __future__ import annotations

import codecs
import json
from contextlib import suppress
from typing import Any

import httpx2

from tracer.errors import InvalidResult, ToolError, ToolUnavailable
from tracer.tools.executors.rest.auth import Credential
from tracer.tools.executors.rest.config import RestConfig

MAX_RETRY_AFTER = 60.0
"""The longest wait in seconds that a server's `Retry-After` may request."""

EXCERPT_CHARACTERS = 500
"""How much of an error response the model is shown."""

CHARSETS = frozenset({
    "ascii", "big5", "big5hkscs", "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255",
    "cp1256", "cp1257", "cp1258", "cp866", "cp874", "cp932", "cp949", "euc_jis_2004", "euc_jp",
    "euc_kr", "gb18030", "gb2312", "gbk", "iso8859-1", "iso8859-2", "iso8859-3", "iso8859-4",
    "iso8859-5", "iso8859-6", "iso8859-7", "iso8859-8", "iso8859-10", "iso8859-13", "iso8859-14",
    "iso8859-15", "iso8859-16", "iso2022_jp", "koi8-r", "koi8-u", "shift_jis", "utf-8", "utf-16",
    "utf-16-be", "utf-16-le",
})  # fmt: skip
"""Python's names of the supported charsets of responses, from the Encoding Standard (whatwg.org).
Python's other codecs are not supported, because some take minutes to decode, such as punycode."""

_EXCERPT_BYTES = 16 * 1024
_TRANSIENT_STATUS = frozenset({429, 502, 503, 504})


async def rest_result(config: RestConfig, response: httpx2.Response, credential: Credential) -> Any:
    """Read a successful response and return the tool's result.

    The result of a response without a body is its status: `{"status": 204}`.

    Raises:
        InvalidResult: The response is too large, or lacks the configured result.
        httpx2.TransportError: The connection was lost.
        httpx2.DecodingError: The response cannot be decompressed.
    """
    body = await _body(response, config.max_bytes)
    if len(body) > config.max_bytes:
        raise InvalidResult(
            f"The API's response is larger than {config.max_bytes} bytes. Request less."
        )
    if config.response is None and not body:
        return {"status": response.status_code}
    if config.response is None and not _is_json(response):
        return credential.hide(_text(body, response))
    try:
        content = credential.hide(json.loads(body))
    except (ValueError, RecursionError):
        raise InvalidResult("The API's response is not valid JSON.") from None
    return content if config.response is None else _value_at(content, config.response)


async def rest_failure(response: httpx2.Response, credential: Credential) -> ToolError:
    """Return the error for an unsuccessful response."""
    status = response.status_code
    excerpt = b""
    with suppress(httpx2.TransportError, httpx2.DecodingError):
        excerpt = await _body(response, _EXCERPT_BYTES)
    text = _one_line(excerpt.decode(_charset(response), "replace"), credential)
    message = f"The API answered {status} {httpx2.codes.get_reason_phrase(status)}".rstrip()
    message = f"{message}: {text}" if text else f"{message}."
    is_transient = status in _TRANSIENT_STATUS
    error = ToolUnavailable(message, retry_after(response)) if is_transient else ToolError(message)
    error.max_characters = EXCERPT_CHARACTERS
    return error


def retry_after(response: httpx2.Response) -> float | None:
    """Return the seconds of a response's `Retry-After`, at most 60; None for a date."""
    text = response.headers.get("retry-after", "").strip()
    return min(float(text), MAX_RETRY_AFTER) if text.isascii() and text.isdigit() else None


async def _body(response: httpx2.Response, limit: int) -> bytes:
    """Read and decompress a body. Stop when it is longer than `limit` bytes."""
    body = bytearray()
    async for chunk in response.aiter_bytes():
        body += chunk
        if len(body) > limit:
            break
    return bytes(body)


def _is_json(response: httpx2.Response) -> bool:
    kind = _media_type(response)
    return kind == "application/json" or kind.endswith("+json")


def _media_type(response: httpx2.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def _charset(response: httpx2.Response) -> str:
    try:
        name = codecs.lookup(response.charset_encoding or "utf-8").name
    except (LookupError, ValueError):
        return "utf-8"
    return name if name in CHARSETS else "utf-8"


def _text(body: bytes, response: httpx2.Response) -> str:
    kind = _media_type(response)
    try:
        return body.decode(_charset(response), "replace" if kind.startswith("text/") else "strict")
    except UnicodeError:
        raise InvalidResult(
            f"The API's response is not text, but {kind or 'of an unknown content type'}."
        ) from None


def _one_line(text: str, credential: Credential) -> str:
    printable = "".join(each if each.isprintable() else " " for each in text)
    return str(credential.hide(" ".join(printable.split())))


def _value_at(content: Any, pointer: str) -> Any:
    """Return the value at a JSON pointer.

    Raises:
        InvalidResult: There is no value at this pointer.
    """
    for key in pointer.split("/")[1:]:
        key = key.replace("~1", "/").replace("~0", "~")
        if isinstance(content, dict) and key in content:
            content = content[key]
        elif isinstance(content, list) and key.isdecimal() and int(key) < len(content):
            content = content[int(key)]
        else:
            raise InvalidResult(f"The API's response has no value at {pointer!r}.")
    return content
