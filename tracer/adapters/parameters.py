"""Select the parameters of a model request that an adapter records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NAMES = (
    *("temperature", "top_p", "top_k", "max_tokens", "max_completion_tokens", "max_output_tokens"),
    *("frequency_penalty", "presence_penalty", "stop", "stop_sequences", "seed", "n", "logprobs"),
    *("top_logprobs", "logit_bias", "parallel_tool_calls", "tool_choice", "response_format"),
    *("reasoning", "reasoning_effort", "thinking", "verbosity", "service_tier", "truncation"),
    *("stream", "store"),
)
"""The parameters that are recorded. Others may hold secrets, such as headers."""

_TEXTS = (str, int, float, bool, list, dict)


def parameters_of(settings: Any) -> dict[str, Any]:
    """Return the parameters of a model request that are recorded.

    Args:
        settings: The settings of a request: a mapping, or an object with attributes.
    """
    if isinstance(settings, Mapping):
        values = {name: settings.get(name) for name in NAMES}
    else:
        values = {name: getattr(settings, name, None) for name in NAMES}
    return {name: value for name, value in values.items() if isinstance(value, _TEXTS)}
