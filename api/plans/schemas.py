"""Schemas of the structs that the server encodes itself, for the OpenAPI document."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec
from pydantic.alias_generators import to_camel

from api.schemas import PLAN_ID, STEP_ID, SUB_PLAN_ID, THINK_ACT_ID, TOOL_CALL_ID
from tracer.lineage.nodes import Opener, PlanNode, StepNode, ThinkActNode, ToolCallNode, TreeTotals
from tracer.records.record_classes import RECORDS, Kind

REF = "#/components/schemas/{name}"


def components(*types: Any) -> dict[str, Any]:
    """Return the schemas of types that the server encodes with msgspec, by name.

    Fields of records get the descriptions of `tracer.records.record_classes`.
    """
    _, schemas = msgspec.json.schema_components(types, ref_template=REF)
    for schema in schemas.values():
        properties = schema.get("properties", {})
        # Fields with a default are always sent. Fields that may be unset have none.
        always = {name for name, field in properties.items() if "default" in field}
        always.update(schema.get("required", ()))
        schema["required"] = [name for name in properties if name in always]
        for field in properties.values():
            field.pop("default", None)
        kinds = properties.get("kind", {}).get("enum", ())
        if len(kinds) == 1:
            for name, info in RECORDS[Kind(kinds[0])].model_fields.items():
                if info.description and (field := properties.get(to_camel(name))) is not None:
                    field.setdefault("description", info.description)
    return schemas


def content(name: str, example: Any) -> dict[str, Any]:
    """Return the OpenAPI content of a JSON response whose schema is one of `components`."""
    return {"application/json": {"schema": {"$ref": REF.format(name=name)}, "example": example}}


def _example() -> Any:
    totals = TreeTotals(120, 40, 0.0004, tool_calls=1)
    started = datetime.fromisoformat("2026-11-21T22:21:52.462812Z")

    def node(node_class: type[Any], **fields: object) -> Any:
        """Return an example node. Missing fields are null, and all texts are complete."""
        names = [*node_class.__struct_fields__[: -len(node_class.__struct_defaults__)]]
        unset = {name: False if name.endswith("truncated") else None for name in names}
        sizes = {
            f"{name}_bytes": len(str(value))
            for name, value in fields.items()
            if f"{name}_bytes" in names
        }
        shown = {
            "status": "succeeded",
            "started_at": started,
            "finished_at": started + timedelta(seconds=1),
            "duration_ms": 1000.0,
            "position": 0,
            "own": totals,
            "cumulative": totals,
        }
        return node_class(**unset | sizes | shown | fields)

    arguments = '{"patient": "p-1"}'
    sub_plan = node(
        PlanNode,
        plan_id=SUB_PLAN_ID,
        root_plan_id=PLAN_ID,
        title="Medication check",
        agent_name="planner",
        inferred=False,
        depth=1,
        parent_plan_id=PLAN_ID,
        tool_call_id=TOOL_CALL_ID,
        parent_act_tool_call=Opener(TOOL_CALL_ID, "medication_check", arguments, "succeeded"),
        user_request="Check the medication of p-1",
    )
    call = node(
        ToolCallNode,
        tool_call_id=TOOL_CALL_ID,
        step_id=STEP_ID,
        think_act_id=THINK_ACT_ID,
        provider_call_id="call_0",
        name="medication_check",
        tool_type="SUBPLAN",
        attempt=1,
        forged_arguments=[],
        inferred=False,
        arguments=arguments,
        result="No interaction.",
        sub_plan_count=1,
        sub_plans=[sub_plan],
    )
    think_act = node(
        ThinkActNode,
        think_act_id=THINK_ACT_ID,
        step_id=STEP_ID,
        requested_model="scripted",
        model="scripted",
        input_tokens=120,
        output_tokens=40,
        cost_usd=0.0004,
        inferred=False,
        thought="I look the medication up.",
        tool_calls=[call],
    )
    step = node(
        StepNode,
        step_id=STEP_ID,
        plan_id=PLAN_ID,
        agent_name="planner",
        request="Review the week",
        result="All is well.",
        think_acts=[think_act],
    )
    plan = node(
        PlanNode,
        plan_id=PLAN_ID,
        root_plan_id=PLAN_ID,
        title="Weekly health review",
        agent_name="planner",
        inferred=False,
        depth=0,
        agent_executions=[step],
        sub_plan_count=1,
        revision=42,
        behind=None,
        unplaced=[],
        user_request="How was my week?",
    )
    return msgspec.to_builtins(plan)


TREE_EXAMPLE = _example()
