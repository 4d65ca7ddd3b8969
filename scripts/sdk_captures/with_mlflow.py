"""MLflow: its decorator and its instrumentation of OpenAI, exported over OTLP."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import mlflow
from openai import AsyncOpenAI
from own_loop import OwnLoop

PACKAGES = ("mlflow", "openai", "opentelemetry-sdk")


def start(receiver: str, model: str) -> tuple[Any, Callable[[], object]]:
    export_over_otlp(receiver)
    mlflow.openai.autolog()
    client = AsyncOpenAI(base_url=model, api_key="none", max_retries=0)
    loop = OwnLoop(
        client,
        agent=lambda name: mlflow.trace(name=name, span_type="AGENT"),
        tool=lambda name: mlflow.trace(name=name, span_type="TOOL"),
    )
    return loop.run, mlflow.flush_trace_async_logging


def export_over_otlp(receiver: str) -> None:
    """Set the variables with which MLflow sends its spans over OTLP, in small batches."""
    os.environ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = f"{receiver}/v1/traces"
    os.environ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = "http/protobuf"
    os.environ["OTEL_BSP_SCHEDULE_DELAY"] = "15"
