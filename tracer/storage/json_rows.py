"""Records as JSON arrays, the form in which statements take any number of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import orjson

from tracer.merge import RULES, Key
from tracer.records import Kind
from tracer.storage.castable_json import FIT_COLUMNS, fits_jsonb
from tracer.versions import Fields

_STATEMENT_BYTES = 32_000_000  # Postgres takes a gigabyte at once, and several copies of it


def json_batches(kind: Kind, versions: Mapping[Key, Fields]) -> Iterator[str]:
    """Yield the versions as JSON arrays in the order of their keys, each small enough to send."""
    rows: list[bytes] = []
    size = 0
    for key in sorted(versions):
        row = orjson.dumps(_row(kind, key, versions[key]), default=str)
        if rows and size + len(row) > _STATEMENT_BYTES:
            yield _array(rows)
            rows, size = [], 0
        rows.append(row)
        size += len(row)
    if rows:
        yield _array(rows)


def _array(rows: list[bytes]) -> str:
    return f"[{b','.join(rows).decode()}]"


def _row(kind: Kind, key: Key, version: Fields) -> dict[str, object]:
    row: dict[str, object] = {"root_plan_id": key[0], RULES[kind].id_field: key[1]}
    # What is not said is null, and costs nothing to read.
    row |= {name: value for name, value in version.items() if value is not None}
    if kind is Kind.TOOL_CALL:
        row |= {flag: True for flag, text in FIT_COLUMNS.items() if fits_jsonb(version.get(text))}
    return row
