"""LangSmith: its decorator and its OpenAI wrapper, exported over OpenTelemetry."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from export import global_provider
from langsmith import Client, traceable
from langsmith.wrappers import wrap_openai
from openai import AsyncOpenAI
from own_loop import OwnLoop

PACKAGES = ("langsmith", "openai", "opentelemetry-sdk")


def start(receiver: str, model: str) -> tuple[Any, Callable[[], object]]:
    client, close = tracing(receiver)
    openai = wrap_openai(AsyncOpenAI(base_url=model, api_key="none", max_retries=0))
    loop = OwnLoop(
        openai,
        agent=lambda name: traceable(name=name, run_type="chain", client=client),
        tool=lambda name: traceable(name=name, run_type="tool", client=client),
    )
    return loop.run, close


def tracing(receiver: str) -> tuple[Client, Callable[[], object]]:
    """Return a client that sends spans to the global provider, and a function that flushes it."""
    provider = global_provider(receiver)
    os.environ |= {
        "LANGSMITH_TRACING": "true",
        "LANGSMITH_OTEL_ENABLED": "true",
        "LANGSMITH_OTEL_ONLY": "true",
        "LANGSMITH_ENDPOINT": receiver,
        "LANGSMITH_API_KEY": "none",
    }
    client = Client()

    def close() -> None:
        client.flush()
        provider.force_flush()

    return client, close
