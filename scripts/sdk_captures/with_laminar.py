"""Laminar: its decorator and its instrumentation of OpenAI."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lmnr import Laminar, observe
from openai import AsyncOpenAI
from own_loop import OwnLoop

PACKAGES = ("lmnr", "openai", "opentelemetry-sdk")


def start(receiver: str, model: str) -> tuple[Any, Callable[[], object]]:
    host, _, port = receiver.rpartition(":")
    Laminar.initialize(
        project_api_key="none",
        base_url=host,
        http_port=int(port),
        force_http=True,
        max_export_batch_size=3,
    )
    client = AsyncOpenAI(base_url=model, api_key="none", max_retries=0)
    loop = OwnLoop(
        client,
        agent=lambda name: observe(name=name),
        tool=lambda name: observe(name=name, span_type="TOOL"),
    )
    return loop.run, Laminar.force_flush
