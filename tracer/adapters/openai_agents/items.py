"""What the OpenAI Agents SDK gives a model and gets from it, in the words of a record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agents import Handoff

from tracer.records.prices import TokenUsage

LOCAL = ("computer", "local_shell", "shell", "apply_patch")
"""Tools of OpenAI that the SDK runs. Others ran at the provider, who tells what came of them."""

_RESULTS = ("output", "outputs", "result", "results")
_NOT_ARGUMENTS = (
    *("id", "call_id", "type", "name", "arguments", "status", "error", "server_label"),
    *_RESULTS,
)


def request_of(asked: Any) -> str | None:
    """Return the latest words of the user.

    Args:
        asked: What a run was given: text, or items.
    """
    if isinstance(asked, str) or asked is None:
        return asked
    for item in reversed(asked):
        if isinstance(item, Mapping) and item.get("role") == "user":
            content = item.get("content")
            if isinstance(content, str):
                return content
            texts = [each.get("text") for each in content or () if isinstance(each, Mapping)]
            return "".join(each for each in texts if isinstance(each, str))
    return None


def text_of_answer(output: Iterable[Any]) -> str | None:
    """Return what a model said, its refusals included; None where it only chose tools."""
    parts = [part for item in output if item.type == "message" for part in item.content]
    texts = [getattr(part, "text", None) or getattr(part, "refusal", None) for part in parts]
    return "".join(text for text in texts if text) or None


def handoffs_of(agent: Any) -> dict[str, str]:
    """Return the agents that an agent may hand over to, by the tools that do it."""
    return {
        each.tool_name if isinstance(each, Handoff) else Handoff.default_tool_name(each): (
            each.agent_name if isinstance(each, Handoff) else each.name
        )
        for each in agent.handoffs
    }


def tools_of(agent: Any) -> list[dict[str, Any]]:
    """Return the tools that an agent offers its model, those of MCP servers left out."""
    return [
        {
            "name": tool.name,
            "description": getattr(tool, "description", None),
            "parameters": getattr(tool, "params_json_schema", None),
        }
        for tool in agent.tools
    ]


def tokens_of(usage: Any) -> TokenUsage | None:
    """Return the tokens of an answer; None where the provider did not say."""
    if not usage.total_tokens:
        return None
    details = usage.input_tokens_details
    return TokenUsage(
        usage.input_tokens,
        usage.output_tokens,
        details.cached_tokens or 0,
        getattr(details, "cache_write_tokens", 0) or 0,
        getattr(usage.output_tokens_details, "reasoning_tokens", 0) or 0,
    )


# --- Calls that a model chose ------------------------------------------------------------------


def is_call(item: Any) -> bool:
    """Return whether an item of an answer is a tool call, of whatever kind."""
    return str(getattr(item, "type", "")).endswith("_call")


def name_of(item: Any) -> str:
    """Return the name of the tool; for one of OpenAI's own what the kind of call says."""
    name = getattr(item, "name", None)
    return name if isinstance(name, str) else str(item.type).removesuffix("_call")


def arguments_of(item: Any) -> Any:
    """Return the arguments: as the model wrote them, or what the item holds instead."""
    if item.type == "function_call":
        return item.arguments
    if item.type == "custom_tool_call":
        return item.input
    held = item.model_dump(exclude_none=True, exclude=set(_NOT_ARGUMENTS))
    return getattr(item, "arguments", None) or held


def call_id_of(item: Any) -> str | None:
    """Return the provider's id of the call."""
    call_id = getattr(item, "call_id", None)
    return call_id if call_id is not None else getattr(item, "id", None)


def kind_of(item: Any) -> str | None:
    """Return the kind of tool, where the item says it."""
    return "MCP" if item.type == "mcp_call" else None


def ran_at_provider(item: Any) -> bool:
    """Return whether the call has ended before the answer came."""
    return item.type.removesuffix("_call") not in ("function", "custom_tool", *LOCAL)


def result_of(item: Any) -> Any:
    """Return what a call came to at the provider."""
    found = next((each for key in _RESULTS if (each := getattr(item, key, None))), None)
    if isinstance(found, list):
        return [each.model_dump() if hasattr(each, "model_dump") else each for each in found]
    return found


def error_of(item: Any) -> Any:
    """Return what went wrong with a call at the provider; None where nothing did."""
    error = getattr(item, "error", None)
    status = getattr(item, "status", None)
    return error or (status if status in ("failed", "incomplete") else None)
