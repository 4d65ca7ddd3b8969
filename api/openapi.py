"""Write the contracts of the API to files. `make openapi` runs this module.

It writes the OpenAPI document, the JSON Schemas of events and trajectories, and the merge rules in
`docs/reference/protocol.md`. The viewer's types are generated from the OpenAPI document. Programs
in other languages follow the schema and the merge rules. A test compares the files with the code.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import orjson

from api.app import create_app
from tracer.records.events import EVENT
from tracer.records.merge import RULES
from tracer.records.record_classes import Merge

DOCS = Path(__file__).parent.parent / "docs"


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document that a server returns at `/openapi.json`."""
    return create_app().openapi()


def events_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of one event as clients send it."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Event",
        "description": "One moment of an agent's run. docs/reference/protocol.md explains it.",
        **EVENT.json_schema(by_alias=True, mode="validation"),
    }


def trajectory_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a trajectory file."""
    from tracer.testing.trajectory import TrajectoryFile  # it needs the extra `testing`

    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **TrajectoryFile.model_json_schema(),
    }


def protocol_page() -> str:
    """Return the text of `docs/reference/protocol.md` with the current merge rule of each field."""
    page = (DOCS / "reference" / "protocol.md").read_text(encoding="utf-8")
    rows = [
        f"| {kind} | {rule.value} | {' '.join(f'`{name}`' for name in fields)} |\n"
        for kind, rules in RULES.items()
        for rule in Merge
        if (fields := getattr(rules, rule.value))
    ]
    return re.sub(r"(^\| \w+ \| \w+ \| `.+` \|\n)+", "".join(rows), page, flags=re.MULTILINE)


def contract_files() -> dict[Path, bytes]:
    """Return the path of each contract file and its expected content."""
    return {
        DOCS / "openapi.json": _pretty(openapi_document()),
        DOCS / "events.schema.json": _pretty(events_schema()),
        DOCS / "trajectory.schema.json": _pretty(trajectory_schema()),
        DOCS / "reference" / "protocol.md": protocol_page().encode(),
    }


def _pretty(document: dict[str, Any]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


if __name__ == "__main__":
    for path, content in contract_files().items():
        path.write_bytes(content)
        sys.stdout.write(f"{path}\n")
