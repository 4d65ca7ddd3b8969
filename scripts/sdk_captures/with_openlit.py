"""OpenLIT: its instrumentation of the OpenAI Agents SDK."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openlit
from agents import OpenAIChatCompletionsModel
from export import global_provider
from openai_agents import OpenAIAgents

PACKAGES = ("openlit", "openai-agents", "opentelemetry-sdk")


def start(receiver: str, model: str) -> tuple[Any, Callable[[], object]]:
    provider = global_provider(receiver)
    openlit.init(disable_metrics=True, disable_events=True)  # uses the global provider
    return OpenAIAgents(model, OpenAIChatCompletionsModel).run, provider.force_flush
