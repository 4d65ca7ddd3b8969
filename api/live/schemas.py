"""The response of a run's event stream, for the OpenAPI document."""

from __future__ import annotations

from typing import Any

from api.plans.schemas import REF
from api.schemas import TOOL_CALL_ID


def _data(model: str) -> dict[str, Any]:
    return {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": {"$ref": REF.format(name=model)},
    }


def _event(name: str | None, data: dict[str, Any], description: str) -> dict[str, Any]:
    named = {} if name is None else {"event": {"const": name}}
    return {
        "type": "object",
        "description": description,
        "required": ["data", *named],
        "properties": {"id": {"type": "string"}, **named, "data": data},
    }


RUN_STREAM: dict[str, Any] = {
    "description": "The stream. It does not end while the run exists.",
    "content": {
        "text/event-stream": {
            "itemSchema": {
                "oneOf": [
                    _event(None, _data("ChangedRecords"), "The changes; `id` is the revision."),
                    _event("reset", _data("RunRevision"), "Too far behind: read the tree again."),
                    _event("stale", {"const": "{}"}, "The store is down until the next message."),
                    _event("deleted", {"const": "{}"}, "The run was deleted; the stream ends."),
                ]
            },
            "example": 'id: 43\ndata: {"changed":[{"kind":"toolCall","toolCallId":'
            f'"{TOOL_CALL_ID}","status":"succeeded"}}],"removed":[]}}\n\n',
        }
    },
}
"""The description of the response for the OpenAPI document. FastAPI cannot derive the messages."""
