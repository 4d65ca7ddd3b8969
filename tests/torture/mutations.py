"""Bodies that were good once: changed, cut, spliced, nested and packed in ways that mean harm."""

from __future__ import annotations

import gzip
import json
import random
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.otel.wire import bytes_field

PROTOBUF, JSON, NDJSON = "application/x-protobuf", "application/json", "application/x-ndjson"
TRACES, EVENTS = "/v1/traces", "/api/events"

MIB = 2**20
DEEP = 20_000
SELDOM = 0.002
"""How often something comes that takes a server a good while to refuse."""

HOSTILE: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 2**31, 2**63 - 1, 2**63, -(2**63) - 1, 10**400, 1e308, -0.0),
    *(float("inf"), float("nan"), "", " ", "\0", "\ud800", "\u202e", "␛0000", "NaN", "null"),
    *("0" * 32, "ffffffff-ffff-ffff-ffff-ffffffffffff", "9999-12-31T23:59:59+14:00"),
    *("0001-01-01T00:00:00Z", "2026-02-30T00:00:00Z", "x" * 70_000, "🧪" * 5_000),
    *([], {}, [[]], [None], {"": ""}, {"\0": "\0"}, {"__proto__": {}}, list(range(2_000))),
    {"stringValue": "x", "intValue": "1", "kvlistValue": {"values": [{"key": "x"}]}},
    {"arrayValue": {"values": [{"arrayValue": {"values": [{}]}}]}},
)
MEDIA_TYPES = (
    *(PROTOBUF, JSON, NDJSON, "", "text/plain", "application/octet-stream", "multipart/form-data"),
    *("application/json; charset=utf-16", "APPLICATION/JSON", "application/json,text/html", "/"),
)
ENCODINGS = ("", "identity", "gzip", "deflate", "br", "gzip, gzip", "GZIP", "x")


@dataclass(frozen=True)
class Sent:
    """A request that records."""

    path: str
    body: bytes
    headers: dict[str, str]


@dataclass(frozen=True)
class Seed:
    """A good body."""

    path: str
    media_type: str
    body: bytes


def mutated(seed: Seed, chance: random.Random) -> Sent:
    """Return a request that was made from a good one."""
    body = seed.body
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
        body = chance.choice(_MUTATIONS[seed.media_type])(body, chance)
    headers = {"Content-Type": seed.media_type}
    if chance.random() < 0.05:
        headers["Content-Type"] = chance.choice(MEDIA_TYPES)
    if chance.random() < SELDOM:
        return Sent(seed.path, _bomb(), {**headers, "Content-Encoding": "gzip"})
    match chance.random():
        case part if part < 0.15:
            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
        case part if part < 0.25:
            body = zlib.compress(body, 1)
            headers["Content-Encoding"] = "deflate"
        case part if part < 0.3:
            headers["Content-Encoding"] = chance.choice(ENCODINGS)
    if "Content-Encoding" in headers and chance.random() < 0.3:
        body = _bytes_changed(body, chance)
    if chance.random() < 0.02:
        headers["Content-Length"] = chance.choice(("0", "-1", "x", "1" * 30, str(len(body) + 1)))
    return Sent(seed.path, body, headers)


@cache
def _bomb() -> bytes:
    """Return more than any body may have, in little."""
    return gzip.compress(bytes(80 * MIB), 1)


def _bytes_changed(body: bytes, chance: random.Random) -> bytes:
    """Flip, cut, insert or repeat bytes, or cut off the end."""
    changed = bytearray(body)
    at = chance.randrange(len(changed) + 1)
    match chance.randrange(5):
        case 0 if at < len(changed):
            changed[at] ^= 1 << chance.randrange(8)
        case 1:
            del changed[at : at + chance.randint(1, 40)]
        case 2:
            changed[at:at] = chance.randbytes(chance.randint(1, 20))
        case 3:
            changed[at:at] = changed[at : at + chance.randint(1, 400)]
        case _:
            del changed[at:]
    return bytes(changed)


def _fields_spliced(body: bytes, chance: random.Random) -> bytes:
    """Put a field between others, mostly where it may be one: after some tag's byte."""
    at = chance.choice([0, len(body), chance.randrange(len(body) + 1)])
    number = chance.choice((1, 2, 3, 4, 5, 7, 9, 15, 16, 2**29 - 1))
    inner = chance.choice((b"", b"\xff" * 10, b"1" * 16, b"\0" * 8, body[:300], b"\xed\xa0\x80"))
    field = bytes_field(number, inner)
    match chance.randrange(5):
        case 0:
            field = _varint(number << 3) + _varint(chance.getrandbits(64))
        case 1:
            field = _varint(number << 3 | 2) + _varint(chance.choice((2**31, 2**63, 5_000_000)))
        case 2:
            field = _varint(number << 3 | chance.randrange(8)) + chance.randbytes(8)
        case 3:
            for _ in range(chance.choice((2, 50, 500))):
                field = bytes_field(number, field)
    return body[:at] + field + body[at:]


def _nested_protobuf(body: bytes, chance: random.Random) -> bytes:
    deep = b""
    for _ in range(DEEP if chance.random() < SELDOM else 200):
        deep = bytes_field(5, bytes_field(1, deep))
    span = bytes_field(1, chance.randbytes(16)) + bytes_field(2, chance.randbytes(8))
    span += bytes_field(9, bytes_field(1, b"k") + bytes_field(2, deep))
    return body + bytes_field(1, bytes_field(2, bytes_field(2, span)))


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _value_changed(body: bytes, chance: random.Random) -> bytes:
    """Change one value in a JSON text, or one key; text that is none gets other bytes."""
    try:
        whole = json.loads(body)
        slots = list(_places(whole))
    except (ValueError, RecursionError):
        return _bytes_changed(body, chance)
    if not slots:
        return json.dumps(chance.choice(HOSTILE)).encode()
    holder, key = chance.choice(slots)
    match chance.randrange(6):
        case 0 if isinstance(holder, dict):
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[chance.choice(("", "x" * 300, "\0", "type", "rootPlanId"))] = holder.pop(key)
        case 2 if isinstance(holder, list):
            holder[key:key] = [holder[key]] * chance.choice((1, 2, 50))
        case 3:
            other_holder, other_key = chance.choice(slots)
            holder[key] = json.loads(json.dumps(other_holder[other_key]))
        case _:
            holder[key] = chance.choice(HOSTILE)
    return json.dumps(whole).encode()


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Return where in it each value stands: what holds it, and its key there."""
    found: list[tuple[Any, Any]] = []
    holders = [value]
    while holders:
        holder = holders.pop()
        keys: Sequence[Any] = ()
        if isinstance(holder, dict):
            keys = list(holder)
        elif isinstance(holder, list):
            keys = range(len(holder))
        found += [(holder, key) for key in keys]
        holders += [holder[key] for key in keys]
    return found


def _nested_json(body: bytes, chance: random.Random) -> bytes:
    """Put deep nesting in the place of one value, as text: no encoder would write it."""
    depth = DEEP if chance.random() < 0.02 else 200
    opening, closing = chance.choice(((b"[", b"]"), (b'{"a":', b"}")))
    deep = opening * depth + b"1" + closing * chance.choice((depth, depth - 1, 0))
    at = body.find(b":", chance.randrange(len(body) + 1)) + 1
    end = min(
        (body.find(each, at) for each in (b",", b"}") if body.find(each, at) >= 0), default=at
    )
    return body[:at] + deep + body[end:]


def _line_changed(body: bytes, chance: random.Random) -> bytes:
    """Change one line of several."""
    lines = body.split(b"\n")
    at = chance.randrange(len(lines))
    match chance.randrange(4):
        case 0:
            lines[at] = chance.choice((b"", b"{", b"null", b"[]", b"{}" * 3, b"\xff", b"1e999999"))
        case 1:
            chance.shuffle(lines)
        case _:
            lines[at] = chance.choice((_value_changed, _nested_json))(lines[at], chance)
    return b"\n".join(lines)


Mutation = Callable[[bytes, random.Random], bytes]

_MUTATIONS: dict[str, tuple[Mutation, ...]] = {
    PROTOBUF: (_bytes_changed, _bytes_changed, _fields_spliced, _fields_spliced, _nested_protobuf),
    JSON: (_bytes_changed, _value_changed, _value_changed, _value_changed, _nested_json),
    NDJSON: (_bytes_changed, _line_changed, _line_changed, _line_changed),
}
