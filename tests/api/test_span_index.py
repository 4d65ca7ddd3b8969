"""The index from spans to their records is the same with and without its cache."""

from __future__ import annotations

from uuid import UUID

import pytest

from api.freshness import Freshness, SpanIndexCache
from tests.contract.conftest import new_postgres_store
from tests.contract.stores import NewStore
from tests.otel.captured import moved
from tests.otel.made_traces import agent, spans_from, tool
from tracer.otel.projection import known_span_records
from tracer.records import DEFAULT_PROJECT_ID

__all__ = ["new_postgres_store"]


@pytest.mark.parametrize("max_spans", [1, 2, 4, 30])
async def test_span_index_is_the_same_with_and_without_its_cache(
    new_postgres_store: NewStore, max_spans: int
) -> None:
    store, cache = new_postgres_store(), SpanIndexCache(known_span_records, max_spans)
    traces = [bytes([number] * 16) for number in range(1, 5)]

    for count in (1, 2, 2, 3):
        for trace in traces:
            spans = spans_from(agent(1, "a"), tool(2, "x", parent=1), tool(3, "y", parent=2))
            await store.record_spans([moved(each, trace) for each in spans[:count]])
        for trace in (*traces, *reversed(traces), *traces):
            run_id = UUID(bytes=trace)
            index = await cache.of_run(store.reader, DEFAULT_PROJECT_ID, run_id, Freshness())
            seen = [index.record_keys[span_id][0].value for _, span_id in index.after(None, None)]
            assert seen == ["step", "toolCall", "toolCall"][:count]
