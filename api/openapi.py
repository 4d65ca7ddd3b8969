"""The contracts as files: `make openapi` writes `docs/openapi.json` and the events' schema.

The viewer's types are generated from the first; programs in other languages hold themselves to
the second. A test compares both with what the code serves.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import orjson

from api.app import create_app
from tracer.events import EVENT

DOCS = Path(__file__).parent.parent / "docs"


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document that the server answers under /openapi.json."""
    return create_app().openapi()


def events_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of one event in its wire form."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Event",
        "description": "One moment of an agent's run. docs/protocol.md explains it.",
        **EVENT.json_schema(by_alias=True, mode="validation"),
    }


def contract_files() -> dict[Path, bytes]:
    """Return each contract file's path and what it has to hold."""
    return {
        DOCS / "openapi.json": _pretty(openapi_document()),
        DOCS / "events.schema.json": _pretty(events_schema()),
    }


def _pretty(document: dict[str, Any]) -> bytes:
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


if __name__ == "__main__":
    for path, content in contract_files().items():
        path.write_bytes(content)
        sys.stdout.write(f"{path}\n")
