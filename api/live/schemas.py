"""Schemas of the messages in a run's event stream, for the OpenAPI document.

A test checks that they agree with the actual messages.
"""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

from api.plans.schemas import (
    NodeKind,
    PlanFields,
    StepFields,
    ThinkActFields,
    ToolCallFields,
)
from api.schemas import TOOL_CALL_ID, read_config

_REF = "#/components/schemas/{model}"

ChangedRecord = Annotated[
    PlanFields | StepFields | ThinkActFields | ToolCallFields, Field(discriminator="kind")
]


class RemovedRecord(BaseModel):
    """A record that no longer exists, because new spans changed the records of the run."""

    model_config = read_config(kind="toolCall", id=TOOL_CALL_ID)

    kind: NodeKind
    id: UUID


class RunChangesSchema(BaseModel):
    """The changes of a run since the client's revision."""

    model_config = read_config()

    changed: list[ChangedRecord]
    """The new or changed records as in a tree, without the records below them."""
    removed: list[RemovedRecord]
    """The records to remove. The records below them lose their parent."""


class RunRevision(BaseModel):
    """The current revision of a run, a number that grows with each visible change."""

    model_config = read_config(revision=42)

    revision: int


def live_components() -> dict[str, Any]:
    """Return the schemas of the stream's data, for the OpenAPI document's components."""
    _, schema = models_json_schema(
        [(RunChangesSchema, "serialization"), (RunRevision, "serialization")], ref_template=_REF
    )
    components: dict[str, Any] = schema["$defs"]
    return components


def _data(model: str) -> dict[str, Any]:
    return {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": {"$ref": _REF.format(model=model)},
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
                    _event(None, _data("RunChangesSchema"), "The changes; `id` is the revision."),
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
