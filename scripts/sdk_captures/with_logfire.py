"""Logfire: its instrumentation of the OpenAI Agents SDK."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import logfire
from export import batches_to
from openai_agents import OpenAIAgents

PACKAGES = ("logfire", "openai-agents", "opentelemetry-sdk")


def start(receiver: str, model: str) -> tuple[Any, Callable[[], object]]:
    os.environ["OTEL_RESOURCE_ATTRIBUTES"] = "host.name=host,host.id=0,os.version=0"
    logfire.configure(
        send_to_logfire=False, console=False, additional_span_processors=[batches_to(receiver)]
    )
    logfire.instrument_openai_agents()
    return OpenAIAgents(model).run, logfire.force_flush
