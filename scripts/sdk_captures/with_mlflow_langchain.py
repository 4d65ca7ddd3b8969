"""MLflow: its instrumentation of LangChain, exported over OTLP."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlflow
from langchain_agents import LangChainAgents
from with_mlflow import export_over_otlp

PACKAGES = ("mlflow", "langchain", "langgraph", "opentelemetry-sdk")


def start(receiver: str, model: str) -> tuple[Any, Callable[[], object]]:
    export_over_otlp(receiver)
    mlflow.langchain.autolog()
    return LangChainAgents(model).run, mlflow.flush_trace_async_logging
