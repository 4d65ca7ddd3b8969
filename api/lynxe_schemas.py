"""Lynxe's records, for the OpenAPI document; `api.lynxe_shapes` writes them."""

from __future__ import annotations

from typing import Literal
from uuid import UUID

import msgspec
from pydantic import BaseModel

from api.lynxe_shapes import agent_record, plan_record
from api.schemas import THINK_ACT_ID, read_config
from api.tree_schemas import TREE_EXAMPLE
from tracer.nodes import PlanNode

LocalDateTime = list[int]
"""Year, month, day, hour, minute, and as far as they are not zero second and nanoseconds; UTC."""


class LynxeActToolInfo(BaseModel):
    """A tool call."""

    model_config = read_config()

    name: str | None
    parameters: str | None
    result: str | None
    """What it returned; of a call that did not end well, what went wrong."""
    id: UUID
    """The tool call's id."""


class LynxeThinkActRecord(BaseModel):
    """A round. One without an id holds the calls that were made outside any round."""

    model_config = read_config()

    id: int | None
    parent_execution_id: int | None
    """The `id` of its agent execution."""
    think_start_time: LocalDateTime | None
    think_end_time: LocalDateTime | None
    """Null, as with Lynxe, and so are the fields that say no more of themselves."""
    act_start_time: LocalDateTime | None
    act_end_time: LocalDateTime | None
    think_input: str | None
    """The messages that the model was given, as the text of a JSON array."""
    think_output: str | None
    action_needed: bool
    """Whether its model chose tools."""
    action_description: str | None
    action_result: str | None
    status: None
    error_message: str | None
    input_char_count: int | None
    """Tokens, as with Lynxe since 4.10.5."""
    output_char_count: int | None
    """Tokens as well."""
    model_context_limit: int | None
    tool_name: str | None
    tool_parameters: str | None
    act_tool_info_list: list[LynxeActToolInfo]
    """Its tool calls, each with the items of its batch after it."""


class LynxeAgentExecutionRecord(BaseModel):
    """A step. One without an id holds what hangs under nothing known."""

    model_config = read_config()

    id: int | None
    step_id: UUID | None
    conversation_id: str | None
    agent_name: str | None
    agent_description: str | None
    start_time: LocalDateTime | None
    end_time: LocalDateTime | None
    max_steps: int | None
    current_step: int
    """How many rounds there were."""
    status: Literal["IDLE", "RUNNING", "FINISHED"]
    """`FINISHED` however it ended; `errorMessage` tells."""
    agent_request: str | None
    result: str | None
    error_message: str | None
    """What went wrong, else the reason or the status of what did not end well."""
    model_name: str | None
    think_act_steps: list[LynxeThinkActRecord]
    sub_plan_execution_records: list[LynxePlanExecutionRecord]
    """What its tool calls opened, and whom it handed over to; the first that began first."""
    latest_method_name: str | None
    """The latest tool call's name."""
    latest_method_args: str | None
    latest_round_number: int | None
    completed: bool
    running: bool
    idle: bool
    completed_think_act_steps_count: int
    """0, as with Lynxe."""
    sub_plan_count: int


class LynxePlanExecutionRecord(BaseModel):
    """A plan."""

    model_config = read_config()

    id: int
    """The first 53 bits of the SHA-256 of the UUID's 16 bytes, as all numeric ids here."""
    current_plan_id: UUID
    root_plan_id: UUID
    parent_plan_id: UUID | None
    tool_call_id: UUID | None
    title: str | None
    user_request: str | None
    start_time: LocalDateTime | None
    end_time: LocalDateTime | None
    current_step_index: int
    completed: bool
    """Whether it has ended, however."""
    summary: str | None
    agent_execution_sequence: list[LynxeAgentExecutionRecord]
    user_input_wait_state: None
    model_name: str | None
    parent_act_tool_call: LynxeActToolInfo | None
    """The tool call that opened it."""
    structure_result: str | None
    """Of the plan that was asked for, once it has ended: the result of its last tool call."""


_TREE = msgspec.convert(TREE_EXAMPLE, PlanNode)
_MESSAGES = {UUID(THINK_ACT_ID): '[{"role": "user", "content": "Review the week"}]'}

PLAN_EXAMPLE = plan_record(_TREE, None, _MESSAGES)
AGENT_EXAMPLE = agent_record(_TREE.agent_executions[0], _MESSAGES)
