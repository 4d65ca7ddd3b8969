"""From an HTTP answer to a REST tool's result, or to the error that the model is told."""

from __future__ import annotations

import codecs
import json
from collections.abc import Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2

from tracer.errors import InvalidResult, ToolError, ToolUnavailable
from tracer.tools.executors.rest.auth import Credential
from tracer.tools.executors.rest.config import RestConfig

MAX_RETRY_AFTER = 60.0
"""For how many seconds at most the other side may send us away."""

EXCERPT_CHARACTERS = 500
"""How much of a failed answer the model is shown."""

CHARSETS = frozenset({
    "ascii", "big5", "big5hkscs", "cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255",
    "cp1256", "cp1257", "cp1258", "cp866", "cp874", "cp932", "cp949", "euc_jis_2004", "euc_jp",
    "euc_kr", "gb18030", "gb2312", "gbk", "iso8859-1", "iso8859-2", "iso8859-3", "iso8859-4",
    "iso8859-5", "iso8859-6", "iso8859-7", "iso8859-8", "iso8859-10", "iso8859-13", "iso8859-14",
    "iso8859-15", "iso8859-16", "iso2022_jp", "koi8-r", "koi8-u", "shift_jis", "utf-8", "utf-16",
    "utf-16-be", "utf-16-le",
})  # fmt: skip
"""The encodings of answers, by Python's names: those of the Encoding Standard (whatwg.org). Python
knows others that are no charsets of text, and takes minutes to decode some, such as punycode."""

_EXCERPT_BYTES = 16 * 1024
_PASSING = frozenset({429, 502, 503, 504})


async def rest_result(config: RestConfig, response: httpx2.Response, credential: Credential) -> Any:
    """Read a successful answer and return the tool's result.

    An answer without a body gives `{"status": 204}`.

    Raises:
        InvalidResult: It is too large, or not what the tool needs.
        httpx2.TransportError: The connection broke.
        httpx2.DecodingError: It cannot be unpacked.
    """
    body = await _body(response, config.max_bytes)
    if len(body) > config.max_bytes:
        raise InvalidResult(
            f"The API's answer is larger than {config.max_bytes} bytes. Ask for less."
        )
    if config.response is None and not body:
        return {"status": response.status_code}
    if config.response is None and not _is_json(response):
        return credential.hide(_text(body, response))
    try:
        answer = credential.hide(json.loads(body))
    except (ValueError, RecursionError):
        raise InvalidResult("The API's answer cannot be read as JSON.") from None
    if config.response is None:
        return answer
    if isinstance(config.response, str):
        return _found(answer, config.response)
    return {name: _found(answer, place) for name, place in config.response.items()}


async def rest_failure(response: httpx2.Response, credential: Credential) -> ToolError:
    """Return the error that an answer other than a success stands for."""
    status = response.status_code
    excerpt = b""
    with suppress(httpx2.TransportError, httpx2.DecodingError):
        excerpt = await _body(response, _EXCERPT_BYTES)
    said = _shown(excerpt.decode(_charset(response), "replace"), credential)
    message = f"The API answered {status} {httpx2.codes.get_reason_phrase(status)}".rstrip()
    message = f"{message}: {said}" if said else f"{message}."
    passing = status in _PASSING
    error = ToolUnavailable(message, retry_after(response)) if passing else ToolError(message)
    error.max_characters = EXCERPT_CHARACTERS
    return error


def retry_after(response: httpx2.Response) -> float | None:
    """Return how many seconds an answer asks to wait, at most a minute; None where it does not.

    A date is held against the answer's own: clocks differ.
    """
    text = response.headers.get("retry-after", "").strip()
    try:
        if text.isascii() and text.isdigit():
            seconds = float(text)
        else:
            date, now = (parsedate_to_datetime(each) for each in (text, response.headers["date"]))
            seconds = (date - now).total_seconds()
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
    return min(max(seconds, 0.0), MAX_RETRY_AFTER)


async def _body(response: httpx2.Response, limit: int) -> bytes:
    """Read and unpack an answer until there is more than `limit`."""
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
        named = codecs.lookup(response.charset_encoding or "utf-8").name
    except (LookupError, ValueError):
        return "utf-8"
    return named if named in CHARSETS else "utf-8"


def _text(body: bytes, response: httpx2.Response) -> str:
    kind = _media_type(response)
    try:
        return body.decode(_charset(response), "replace" if kind.startswith("text/") else "strict")
    except UnicodeError:
        raise InvalidResult(
            f"The API's answer is {kind or 'of an unknown kind'}, which is no text."
        ) from None


def _shown(text: str, credential: Credential) -> str:
    printable = "".join(each if each.isprintable() else " " for each in text)
    return str(credential.hide(" ".join(printable.split())))


def _found(answer: Any, place: str) -> Any:
    """Return what is at a JSON pointer, or at a dotted path, of an answer.

    Raises:
        InvalidResult: There is nothing.
    """
    if place.startswith("/"):
        keys = [key.replace("~1", "/").replace("~0", "~") for key in place[1:].split("/")]
    else:
        keys = place.split(".") if place else []
    for key in keys:
        if isinstance(answer, Mapping) and key in answer:
            answer = answer[key]
        elif isinstance(answer, list) and key.isdecimal() and int(key) < len(answer):
            answer = answer[int(key)]
        else:
            raise InvalidResult(f"The API's answer has nothing at {place!r}.")
    return answer
