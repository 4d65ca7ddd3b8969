"""Adapter, span processor and OTLP record the same records for one scenario."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from pydantic_ai import Agent
from pydantic_ai.models.instrumented import InstrumentationSettings

from tests.adapters.outline import outline
from tests.adapters.pydantic_ai_agents import VERSION, planner_of
from tests.adapters.recording import recording, trees_of
from tests.adapters.scenario import CITIES, assert_scenario, scenario, seen_facts
from tests.adapters.spans_store import processing
from tests.servers import ONE_PROJECTOR, tracer_server
from tests.storage.postgres.pending_runs import until_projected
from tests.trees import Node, complete
from tracer.adapters import pydantic_ai


@pytest.mark.thorough
async def test_adapter_span_processor_and_otlp_record_the_same_concurrent_runs(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("adapter", "processor", "server"):
        (tmp_path / folder).mkdir()
    wanted = [scenario(run) for run in range(len(CITIES))]
    with (
        tracer_server(database_url, tmp_path / "server", settings=ONE_PROJECTOR) as url,
        recording(tmp_path / "adapter") as (tracing, adapter_store),
        processing(tmp_path / "processor") as (provider, processor_store),
    ):
        # As everybody sets it, and small, so that children leave before their parents.
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), max_export_batch_size=4))
        uninstall = pydantic_ai.install(tracing)
        Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
        try:
            planner = planner_of(wanted)
            await asyncio.gather(*(planner.run(each.prompt) for each in wanted))
        finally:
            Agent.instrument_all(False)
            uninstall()
        assert await asyncio.to_thread(provider.force_flush)
        await until_projected(database_url)  # a list does not wait for pending spans
        by_way = [
            _by_prompt(await trees_of(adapter_store)),
            _by_prompt(await trees_of(processor_store)),
            _by_prompt(await _served_trees(url)),
        ]
        await asyncio.to_thread(provider.shutdown)

    for each in wanted:
        adapter, processor, otlp = [trees[each.prompt] for trees in by_way]
        for tree in (adapter, processor, otlp):
            assert_scenario(tree, each, VERSION)
        assert seen_facts(adapter) == seen_facts(processor) == seen_facts(otlp), VERSION
        assert _shape(adapter) == _shape(processor) == _shape(otlp), VERSION


def _by_prompt(trees: list[Node]) -> dict[str, Node]:
    return {tree["userRequest"]: tree for tree in trees}


def _shape(tree: Node) -> list[str]:
    # pydantic-ai's spans have the arguments as it writes them, the adapter as the model did.
    return [line.replace('": ', '":') for line in outline(tree)]


async def _served_trees(url: str) -> list[Node]:
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:

        async def get(path: str) -> Any:
            return (await client.get(path)).raise_for_status().json()

        runs = (await get("/api/runs"))["items"]
        return [complete(await get(f"/api/plans/{run['rootPlanId']}/tree")) for run in runs]
