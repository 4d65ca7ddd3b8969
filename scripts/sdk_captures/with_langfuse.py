"""Langfuse: its decorators and its OpenAI client, with a second exporter to Tracer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from export import global_provider
from langfuse import Langfuse, observe
from langfuse.openai import AsyncOpenAI
from own_loop import OwnLoop

PACKAGES = ("langfuse", "openai", "opentelemetry-sdk")


def start(receiver: str, model: str) -> tuple[Any, Callable[[], object]]:
    provider = global_provider(receiver)
    langfuse = Langfuse(
        public_key="pk", secret_key="sk", base_url=receiver, tracer_provider=provider
    )
    client = AsyncOpenAI(base_url=model, api_key="none", max_retries=0)
    loop = OwnLoop(
        client,
        agent=lambda name: observe(name=name, as_type="agent"),
        tool=lambda name: observe(name=name, as_type="tool"),
    )

    def close() -> None:
        langfuse.flush()
        provider.force_flush()

    return loop.run, close
