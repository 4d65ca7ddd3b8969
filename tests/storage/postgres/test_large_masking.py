"""Large writes are redacted in a worker thread, and do not block the event loop."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from tests.otel.made_traces import make_span, spans_from
from tests.otel.sent import traces_of
from tests.sample_runs import sample_run
from tracer.records.events import Event, PlanStarted
from tracer.records.spans import TraceSpans
from tracer.redaction import LinearRegex, Redaction
from tracer.storage.postgres import Pool, ProjectPool, WriterOptions, postgres_writer
from tracer.storage.postgres.writer import SMALL_SIZE

LARGE = "ward " * SMALL_SIZE + "secret-7"
SMALL = "ward secret-7"


class Masker(LinearRegex):
    """A pattern, a writer that searches texts for it, and the ids of the threads that do."""

    def __init__(self, pool: Pool) -> None:
        super().__init__("secret-7")
        self.threads: set[int] = set()
        self.writer = postgres_writer(
            ProjectPool(pool), WriterOptions(redaction=Redaction(values=[self]))
        )

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        self.threads.add(threading.get_ident())
        return super().spans(text)


@pytest.fixture
def masker(pool: Pool) -> Masker:
    return Masker(pool)


def asking(text: str) -> Sequence[Event]:
    started = next(each for each in sample_run().events if isinstance(each, PlanStarted))
    return [started.model_copy(update={"user_request": text})]


def calling_in_a_span(arguments: str) -> Sequence[TraceSpans]:
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.call.arguments": arguments}
    return traces_of(spans_from(make_span(1, "execute_tool measure", attributes)))


async def test_small_events_and_spans_are_redacted_in_the_event_loop(masker: Masker) -> None:
    await masker.writer.write(asking(SMALL))
    assert masker.threads == {threading.get_ident()}

    masker.threads.clear()
    await masker.writer.write_spans(calling_in_a_span(SMALL))

    assert masker.threads == {threading.get_ident()}


async def test_large_events_are_redacted_in_a_thread(masker: Masker) -> None:
    await masker.writer.write(asking(LARGE))

    assert masker.threads
    assert threading.get_ident() not in masker.threads


async def test_large_spans_are_redacted_in_a_thread(masker: Masker) -> None:
    await masker.writer.write_spans(calling_in_a_span(LARGE))

    assert masker.threads
    assert threading.get_ident() not in masker.threads
