"""Traceloop: its decorators and its instrumentation of OpenAI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from export import batches_to
from openai import AsyncOpenAI
from own_loop import OwnLoop
from traceloop.sdk import Traceloop
from traceloop.sdk.decorators import agent, tool

PACKAGES = ("traceloop-sdk", "openai", "opentelemetry-sdk")


def start(receiver: str, model: str) -> tuple[Any, Callable[[], object]]:
    processor = batches_to(receiver)
    Traceloop.init("captures", processor=processor, telemetry_enabled=False)
    client = AsyncOpenAI(base_url=model, api_key="none", max_retries=0)
    loop = OwnLoop(client, agent=lambda name: agent(name=name), tool=lambda name: tool(name=name))
    return loop.run, processor.force_flush
