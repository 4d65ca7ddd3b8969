"""LangSmith: LangChain's own tracing, exported over OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from langchain_agents import LangChainAgents
from langchain_core.tracers.langchain import LangChainTracer
from with_langsmith import tracing

PACKAGES = ("langsmith", "langchain", "langgraph", "opentelemetry-sdk")


def start(receiver: str, model: str) -> tuple[Any, Callable[[], object]]:
    client, close = tracing(receiver)
    tracer = LangChainTracer(client=client)

    def close_all() -> None:
        tracer.wait_for_futures()
        close()

    return LangChainAgents(model, (tracer,)).run, close_all
