"""The contract files in `docs/` match what the code serves."""

from __future__ import annotations

import jsonschema_rs
import msgspec
from pydantic import BaseModel

from api.openapi import contract_files, events_schema
from api.problems import PROBLEMS
from api.routes.diff import DIFF_EXAMPLE
from api.routes.plans import TREE_EXAMPLE
from api.routes.stats import ToolHistorySchema, ToolStatsList
from api.schemas import PLAN_ID, LineageItem, PlanWithParent, RunSchema
from scripts.rows import FILE, updated
from tracer import errors
from tracer.lineage.diff import RunDiff
from tracer.lineage.tree import PlanNode
from tracer.records.events import EVENT, ThoughtStarted, event_json


def test_contract_files_match_what_the_code_serves() -> None:
    for path, content in contract_files().items():
        assert content == path.read_bytes(), f"{path.name} is stale: run `make openapi`"


def test_generated_rows_match_the_record_classes() -> None:
    assert updated() == FILE.read_text("utf-8"), "run `make fields`"


def test_openapi_examples_match_their_schemas() -> None:
    msgspec.convert(DIFF_EXAMPLE, RunDiff)
    msgspec.convert(TREE_EXAMPLE, PlanNode)
    schemas: list[type[BaseModel]] = [
        RunSchema,
        PlanWithParent,
        LineageItem,
        ToolStatsList,
        ToolHistorySchema,
    ]
    for schema in schemas:
        extra = schema.model_config.get("json_schema_extra") or {}
        assert isinstance(extra, dict)
        examples = extra.get("examples", [])
        assert isinstance(examples, list)
        json_schema = schema.model_json_schema(mode="serialization", by_alias=True)
        for example in examples:
            jsonschema_rs.validate(json_schema, example)


def test_encoded_event_matches_the_events_schema() -> None:
    event = ThoughtStarted.model_validate(
        {
            "at": "2026-01-01T00:00:00Z",
            "rootPlanId": PLAN_ID,
            "planId": PLAN_ID,
            "stepId": PLAN_ID,
            "thinkActId": PLAN_ID,
            "position": 0,
            "messages": [{"role": "user", "content": "a\0b"}],
        }
    )
    wire = event_json(event)

    jsonschema_rs.validate(
        events_schema(), EVENT.dump_python(event, mode="json", by_alias=True, exclude_none=True)
    )
    assert event == EVENT.validate_json(wire)


def test_every_error_class_has_an_http_status_and_a_code() -> None:
    def tree(kind: type[errors.TracerError]) -> set[type[errors.TracerError]]:
        kinds = {kind}.union(*(tree(below) for below in kind.__subclasses__()))
        return {each for each in kinds if each.__module__ == "tracer.errors"}

    unmapped = {
        kind
        for kind in tree(errors.TracerError)
        if next(k for k in kind.__mro__ if k in PROBLEMS) is errors.TracerError
    }

    # These end inside a run, as its outcome; none reaches a request.
    inside = {errors.TracerError, errors.PlanningError, errors.ModelError}
    inside |= tree(errors.ToolError) | tree(errors.LineageError)
    assert unmapped == inside
