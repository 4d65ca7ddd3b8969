"""If captured traces project to other rows, `PROJECTION_VERSION` must change."""

from __future__ import annotations

import json
from hashlib import blake2b
from pathlib import Path
from typing import Any

from tests.otel.captured import NAMES, by_trace, spans_of
from tests.otel.projections import message_of
from tracer.otel.projection import (
    PROJECTED_FIELDS,
    PROJECTION_VERSION,
    RUN_FIELDS,
    ProjectedRun,
    project_run,
)
from tracer.records import Kind

STORED = Path(__file__).parent / "projection_version.json"


def test_rows_of_the_captures_change_only_with_the_projection_version() -> None:
    stored = json.loads(STORED.read_text())
    # A new capture needs no entry: its truth is in its own `expected.json`.
    digests = {name: digest_of(name) for name in NAMES if name in stored["digests"]}
    found = {"version": PROJECTION_VERSION, "digests": digests}
    assert stored == found, (
        "The rows of the captured traces changed. Raise PROJECTION_VERSION in"
        " tracer/otel/projection/project.py by one, unless it was raised since the last release, so"
        f" that stored runs are projected again. Then write this into {STORED.name}:"
        f" {json.dumps(found, indent=2)}"
    )


def digest_of(name: str) -> str:
    """Return a hash of a capture's rows, without costs by the price list: they stay as stored."""
    digest = blake2b(digest_size=16)
    for trace_id, spans in sorted(by_trace(spans_of(name)).items()):
        run = project_run([message_of(span) for span in spans])
        rows = [trace_id, _run_row(run), *_rows(run)]
        digest.update(json.dumps(rows, default=_plain).encode())
    return digest.hexdigest()


def _run_row(run: ProjectedRun) -> list[Any]:
    return [
        value
        for field, value in zip(RUN_FIELDS, run.run, strict=True)
        if field != "cost_usd" or not run.priced
    ]


def _rows(run: ProjectedRun) -> list[Any]:
    cost = PROJECTED_FIELDS[Kind.THINK_ACT].index("cost_usd")
    found: list[Any] = []
    for kind, rows in run.rows.items():
        for record_id, row in sorted(rows.items()):
            is_priced = kind is Kind.THINK_ACT and record_id in run.priced
            found.append([kind, record_id, *(row[:cost] + row[cost + 1 :] if is_priced else row)])
    return found


def _plain(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
