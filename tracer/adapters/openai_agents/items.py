"""Convert the OpenAI Agents SDK's input and output items to recorded values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agents import Handoff
from openai import AsyncAzureOpenAI, AsyncOpenAI
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from tracer.records.prices import TokenUsage, provider_at

LOCAL = ("computer", "local_shell", "shell", "apply_patch")
"""OpenAI's own tools that run in this process. The provider runs OpenAI's other tools."""

_RESULTS = ("output", "outputs", "result", "results")
_NOT_ARGUMENTS = (
    *("id", "call_id", "type", "name", "arguments", "status", "error", "server_label"),
    *_RESULTS,
)


def request_of(run_input: Any) -> str | None:
    """Return the user's last message; None if the input has none.

    Args:
        run_input: The input of a run: text, or items.
    """
    if isinstance(run_input, str) or run_input is None:
        return run_input
    for item in reversed(run_input):
        if isinstance(item, Mapping) and item.get("role") == "user":
            content = item.get("content")
            if isinstance(content, str):
                return content
            texts = [each.get("text") for each in content or () if isinstance(each, Mapping)]
            return "".join(each for each in texts if isinstance(each, str))
    return None


def text_of_answer(output: Iterable[Any]) -> str | None:
    """Return the text of an answer, including refusals; None if the answer has only tool calls."""
    parts = [part for item in output if item.type == "message" for part in item.content]
    texts = [getattr(part, "text", None) or getattr(part, "refusal", None) for part in parts]
    return "".join(text for text in texts if text) or None


def handoffs_of(agent: Any) -> dict[str, str]:
    """Return the names of an agent's hand-off targets, keyed by the names of the hand-off tools."""
    return {
        each.tool_name if isinstance(each, Handoff) else Handoff.default_tool_name(each): (
            each.agent_name if isinstance(each, Handoff) else each.name
        )
        for each in agent.handoffs
    }


def tools_of(agent: Any) -> list[dict[str, Any]]:
    """Return the tools that an agent offers its model, except those of MCP servers."""
    return [
        {
            "name": tool.name,
            "description": getattr(tool, "description", None),
            "parameters": getattr(tool, "params_json_schema", None),
        }
        for tool in agent.tools
    ]


def provider_of(model: Any) -> str | None:
    """Return the name of a model's provider; None if the provider is unknown.

    Args:
        model: The SDK's object for the model.
    """
    client = getattr(model, "_client", None)
    if isinstance(client, AsyncAzureOpenAI):
        return "azure.ai.openai"
    return provider_at(str(client.base_url)) if isinstance(client, AsyncOpenAI) else None


def finish_reason_of(response: Any) -> str | None:
    """Return a model's finish reason in the terms of OpenAI's API; None if it is unknown.

    Args:
        response: A response of the chat completions API or of the responses API.
    """
    if isinstance(response, ChatCompletion):
        return response.choices[0].finish_reason if response.choices else None
    if not isinstance(response, Response):
        return None
    details = response.incomplete_details
    return (details and details.reason) or response.status


def tokens_of(usage: Any) -> TokenUsage | None:
    """Return the tokens of an answer; None if the provider did not report them."""
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
    """Return whether an item of an answer is a tool call of any kind."""
    return str(getattr(item, "type", "")).endswith("_call")


def name_of(item: Any) -> str:
    """Return the name of the tool that an item calls.

    For OpenAI's own tools, the name is taken from the item's type.
    """
    name = getattr(item, "name", None)
    return name if isinstance(name, str) else str(item.type).removesuffix("_call")


def arguments_of(item: Any) -> Any:
    """Return a call's arguments as the model wrote them.

    If the item has no arguments, return its other fields.
    """
    if item.type == "function_call":
        return item.arguments
    if item.type == "custom_tool_call":
        return item.input
    other_fields = item.model_dump(exclude_none=True, exclude=set(_NOT_ARGUMENTS))
    return getattr(item, "arguments", None) or other_fields


def call_id_of(item: Any) -> str | None:
    """Return the provider's id of the call."""
    call_id = getattr(item, "call_id", None)
    return call_id if call_id is not None else getattr(item, "id", None)


def kind_of(item: Any) -> str | None:
    """Return the type of the tool that an item calls; None if the item does not state it."""
    return "MCP" if item.type == "mcp_call" else None


def ran_at_provider(item: Any) -> bool:
    """Return whether the provider itself ran the call.

    Such a call ended before the answer arrived.
    """
    return item.type.removesuffix("_call") not in ("function", "custom_tool", *LOCAL)


def result_of(item: Any) -> Any:
    """Return the result of a call that the provider ran; None if the item has none."""
    result = next((each for key in _RESULTS if (each := getattr(item, key, None))), None)
    if isinstance(result, list):
        return [each.model_dump() if hasattr(each, "model_dump") else each for each in result]
    return result


def error_of(item: Any) -> Any:
    """Return the error of a call that the provider ran; None if it succeeded."""
    error = getattr(item, "error", None)
    status = getattr(item, "status", None)
    return error or (status if status in ("failed", "incomplete") else None)
