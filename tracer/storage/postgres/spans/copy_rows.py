"""Rows in the binary format of `COPY`, and their digests.

The format is documented under "Binary Format" of `COPY` in the PostgreSQL manual. A row of a
projection is packed once: the same bytes are hashed and sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from decimal import Decimal
from functools import partial
from hashlib import blake2b
from struct import Struct
from typing import Any

from psycopg.types.numeric import DecimalBinaryDumper

from tracer.otel.projection.project import PROJECTED_FIELDS, Row
from tracer.records.merge import RULES
from tracer.records.record_classes import RECORDS, Kind
from tracer.records.status import Status
from tracer.storage.postgres.schema.record_tables import TABLES, column_type

POSTGRES_EPOCH = 946_684_800_000_000
"""2000-01-01, from which Postgres counts, in microseconds since 1970."""

_CHUNK_BYTES = 2**18
_HEADER = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_TRAILER = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_TRUE, _FALSE = b"\0\0\0\1\1", b"\0\0\0\1\0"
_UUID_LENGTH = b"\0\0\0\x10"
_TEXT_OID = 25

_length = Struct(">i").pack
_count = Struct(">h").pack
_int4 = Struct(">ii").pack
_int8 = Struct(">iq").pack
_two_int8 = Struct(">iqiq").pack
_list_header = Struct(">iiiii").pack
_unpack_digest = Struct(">q").unpack

_numeric = DecimalBinaryDumper(Decimal).dump


def _bytes_value(value: bytes) -> bytes:
    return _length(len(value)) + value


def _text_value(value: str) -> bytes:
    data = value.encode()
    return _length(len(data)) + data


def _numeric_value(value: Decimal | int) -> bytes:
    data = _numeric(Decimal(value))
    assert data is not None
    return _bytes_value(bytes(data))


def _list_value(value: tuple[str, ...]) -> bytes:
    if not value:
        return _NULL
    items = b"".join(map(_text_value, value))
    return _bytes_value(_list_header(1, 0, _TEXT_OID, len(value), 1) + items)


_VALUES: Mapping[str, Callable[[Any], bytes]] = {
    "UUID": _UUID_LENGTH.__add__,
    "TEXT": _text_value,
    "record_status": {status: _text_value(status) for status in Status}.__getitem__,
    "TEXT[]": _list_value,
    "BOOLEAN": {True: _TRUE, False: _FALSE}.__getitem__,
    "INTEGER": partial(_int4, 4),
    "BIGINT": partial(_int8, 8),
    "NUMERIC": _numeric_value,
    "TIMESTAMP WITH TIME ZONE": lambda value: _int8(8, value - POSTGRES_EPOCH),
}
"""How a value of each type is written. Times are microseconds since 1970."""

_FIELDS = {
    kind: [_VALUES[column_type(TABLES[kind], field)] for field in fields]
    for kind, fields in PROJECTED_FIELDS.items()
}


def pack_row(kind: Kind, row: Row) -> bytes:
    """Return the fields of a projected row in the format of `COPY`.

    Raises:
        struct.error: A number is too large for its column.
    """
    return b"".join(
        [
            _NULL if value is None else packed(value)
            for packed, value in zip(_FIELDS[kind], row, strict=True)
        ]
    )


def digest_of(packed: bytes) -> int:
    """Return 64 bits of BLAKE2b over a packed row, as a `bigint`."""
    digest: int = _unpack_digest(blake2b(packed, digest_size=8).digest())[0]
    return digest


class CopyRows:
    """The rows of one project and one kind of record that are copied into its table."""

    def __init__(self, project_id: int, kind: Kind) -> None:
        columns = (
            *("project_id", "root_plan_id", "revision", RULES[kind].id_field, "recorded_at"),
            "digest",
            *PROJECTED_FIELDS[kind],
        )
        self.statement = f"COPY {TABLES[kind]} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
        self._start = _count(len(columns)) + _int4(4, project_id) + _UUID_LENGTH
        self._parts: list[bytes] = []

    def __bool__(self) -> bool:
        return bool(self._parts)

    def beginning(self, run_id: bytes, revision: int) -> bytes:
        """Return the bytes with which each row of a run begins.

        Args:
            run_id: The run, as 16 bytes.
            revision: The run's revision.
        """
        return self._start + run_id + _int8(8, revision) + _UUID_LENGTH

    def add(
        self,
        beginning: bytes,
        record_id: bytes,
        recorded_at: int,
        row: Row,
        packed: bytes,
        digest: int,
    ) -> None:
        """Add a row.

        Args:
            beginning: The bytes that `beginning` returns for the row's run.
            record_id: The record, as 16 bytes.
            recorded_at: Microseconds since 1970.
            row: The values of the projected fields.
            packed: The same values, packed by `pack_row`.
            digest: The digest of `packed`.
        """
        parts = self._parts
        parts.append(beginning + record_id + _two_int8(8, recorded_at - POSTGRES_EPOCH, 8, digest))
        parts.append(packed)

    def chunks(self) -> Iterator[bytes]:
        """Yield the data to send to Postgres."""
        data = b"".join((_HEADER, *self._parts, _TRAILER))
        for start in range(0, len(data), _CHUNK_BYTES):
            yield data[start : start + _CHUNK_BYTES]


def no_rows(project_id: int, kinds: Iterable[Kind] = RECORDS) -> dict[Kind, CopyRows]:
    """Return an empty `CopyRows` for each kind of record."""
    return {kind: CopyRows(project_id, kind) for kind in kinds}
