"""A language model behind an OpenAI-compatible chat completions API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from openai import AsyncOpenAI, OpenAIError
from openai.types.chat import ChatCompletion, ChatCompletionMessageToolCallUnion

from tracer.errors import ConfigurationError, ModelError
from tracer.records.prices import TokenUsage, cost_of, provider_at, token_count
from tracer.runtime.chat_model import (
    ChosenCall,
    Generation,
    Message,
    ToolSpec,
    wire_messages,
)

MAX_RETRIES = 4
"""How often a request is retried after a rate limit, a server error or a lost connection.

The `openai` library waits as long as the server's `Retry-After` requests, or with a backoff."""

TIMEOUT_SECONDS = 600.0
"""The timeout of one request, in addition to the deadline of the step."""


class OpenAIModel:
    """One model of an OpenAI-compatible server."""

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        max_retries: int = MAX_RETRIES,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        """Create a client, without sending anything.

        Args:
            model: The model's name.
            base_url: The API's URL, including `/v1`; by default `OPENAI_BASE_URL`, or OpenAI's.
            api_key: The key; by default `OPENAI_API_KEY`.
            max_retries: How often a request is retried after a transient error.
            parameters: Parameters of each request, such as `{"temperature": 0.2}`.

        Raises:
            ConfigurationError: There is no key.
        """
        self.name = model
        self.parameters = dict(parameters or {})
        try:
            self._client = AsyncOpenAI(
                base_url=base_url, api_key=api_key, max_retries=max_retries, timeout=TIMEOUT_SECONDS
            )
        except OpenAIError as error:
            raise ConfigurationError(
                "The model needs an API key. Set OPENAI_API_KEY (to any text if the server "
                "requires no key)."
            ) from error

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Generation:
        """Return the model's response; see `ChatModel`."""
        request: dict[str, Any] = {
            **self.parameters,
            "model": self.name,
            "messages": wire_messages(messages),
        }
        if tools:
            # The API rejects an empty list.
            request["tools"] = [_wire_tool(each) for each in tools]
        try:
            completion: ChatCompletion = await self._client.chat.completions.create(**request)
        except OpenAIError as error:
            message = str(error)
            if self._client.api_key:
                # Some servers quote an invalid key.
                message = message.replace(self._client.api_key, "(the key)")
            # `from None`, because the recorded stack would contain the original message.
            raise ModelError(f"The request to the model failed: {message}") from None
        return _generation(completion, str(self._client.base_url))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


def _wire_tool(tool: ToolSpec) -> dict[str, Any]:
    return {
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        },
    }


def _generation(completion: ChatCompletion, base_url: str) -> Generation:
    # The library does not validate responses: any field may be missing or have another type.
    if not getattr(completion, "choices", None):
        raise ModelError("The model's response has no choices.")
    choice = completion.choices[0]
    message = getattr(choice, "message", None)
    if message is None:
        raise ModelError("The model's response has no message.")
    usage = getattr(completion, "usage", None)
    input_tokens = token_count(getattr(usage, "prompt_tokens", None))
    output_tokens = token_count(getattr(usage, "completion_tokens", None))
    model = completion.model if isinstance(completion.model, str) else None
    details = getattr(usage, "prompt_tokens_details", None)
    cached = token_count(getattr(details, "cached_tokens", None))
    token_details = getattr(usage, "completion_tokens_details", None)
    reasoning = token_count(getattr(token_details, "reasoning_tokens", None))
    provider, cost = provider_at(base_url), None
    if model is not None and input_tokens is not None and output_tokens is not None:
        counts = TokenUsage(input_tokens, output_tokens, cached or 0, reasoning=reasoning or 0)
        cost = cost_of(counts, model, provider=provider)
    return Generation(
        text=_text(message.content) or _text(getattr(message, "refusal", None)),
        tool_calls=tuple(_chosen(each) for each in message.tool_calls or ()),
        model=model,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        cost_usd=cost,
        finish_reason=_text(choice.finish_reason) or None,
        provider=provider,
        cache_read_tokens=cached,
        reasoning_tokens=reasoning,
    )


def _chosen(call: ChatCompletionMessageToolCallUnion) -> ChosenCall:
    provider_call_id = None if call.id is None else _text(call.id)
    if call.type == "custom":
        return ChosenCall(_text(call.custom.name), _text(call.custom.input), provider_call_id)
    return ChosenCall(_text(call.function.name), _text(call.function.arguments), provider_call_id)


def _text(value: Any) -> str:
    """Return a field as text. Some servers send objects in place of text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
