"""A recording in memory has the trees that a server has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

import tracer
from tests.api.commands import serving_here
from tests.otel.captured import spans_of
from tracer.lineage.tree import PlanNode
from tracer.otel.otlp import decode_protobuf
from tracer.otel.otlp.spans import encode_protobuf, root_plan_id

CAPTURES = ("pydantic-ai-default-single", "openai-agents-openinference-single")


def _plain(tree: PlanNode) -> Any:
    """Return a tree without what only a server knows."""
    found = msgspec.json.decode(msgspec.json.encode(tree))
    return {**found, "revision": None, "behind": None}


@pytest.mark.parametrize("capture", CAPTURES)
def test_spans_in_memory_have_the_tree_of_a_server(
    database_url: str, tmp_path: Path, capture: str
) -> None:
    spans = spans_of(capture)
    body = encode_protobuf(spans)
    run_id = root_plan_id(spans[0].trace_id)
    recording = tracer.recording_in_memory()
    recording.add_spans(decode_protobuf(body).traces)

    with serving_here(database_url, tmp_path, projectors=1) as url:
        headers = {"Content-Type": "application/x-protobuf"}
        httpx2.post(f"{url}/v1/traces", content=body, headers=headers).raise_for_status()
        with tracer.read(url) as server:
            run = server.run(str(run_id))

    assert run.calls()
    assert [_plain(each) for each in recording.trees()] == [_plain(run.node)]
