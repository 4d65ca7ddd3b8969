"""Langfuse: its callback handler for LangChain, with a second exporter to Tracer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from export import global_provider
from langchain_agents import LangChainAgents
from langfuse import Langfuse
from langfuse.langchain import CallbackHandler

PACKAGES = ("langfuse", "langchain", "langgraph", "opentelemetry-sdk")


def start(receiver: str, model: str) -> tuple[Any, Callable[[], object]]:
    provider = global_provider(receiver)
    langfuse = Langfuse(
        public_key="pk", secret_key="sk", base_url=receiver, tracer_provider=provider
    )
    agents = LangChainAgents(model, (CallbackHandler(),))

    def close() -> None:
        langfuse.flush()
        provider.force_flush()

    return agents.run, close
