"""The span processor: which spans it sends and when, its queue, and outages of the store."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from pydantic_ai import Agent
from pydantic_ai.models.instrumented import InstrumentationSettings

from tests.adapters.outline import outline
from tests.adapters.pydantic_ai_agents import VERSION, calls, planner_of, scripted
from tests.adapters.recording import tree_of
from tests.adapters.scenario import assert_scenario, scenario
from tests.adapters.spans_store import SpansStore, processing
from tracer.adapters.opentelemetry import BATCH_SPANS, TracerSpanProcessor

DEADLINE_SECONDS = 60.0
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "measure"}


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _lost(caplog: pytest.LogCaptureFixture) -> Counter[str]:
    lines = [vars(each)["fields"] for each in caplog.records if "spans_dropped" in each.message]
    return sum(
        (Counter(starts=each.get("starts", 0), spans=each["spans"]) for each in lines), Counter()
    )


def test_long_span_is_written_at_its_start_and_at_its_end(tmp_path: Path) -> None:
    with processing(tmp_path) as (provider, store):
        span = provider.get_tracer("t").start_span("measure", attributes=TOOL)
        assert provider.force_flush()
        [started] = store.written
        span.set_attribute("gen_ai.tool.call.result", "121/79")
        span.end()
        assert provider.force_flush()

    assert (started.end, started.attributes) == (0, TOOL)
    ended = store.written[-1]
    assert ended.span_id == started.span_id
    assert ended.end > ended.start == started.start
    assert ended.attributes["gen_ai.tool.call.result"] == "121/79"


def test_attributes_set_before_a_spans_start_is_sent_are_included(tmp_path: Path) -> None:
    with processing(tmp_path) as (provider, store):
        span = provider.get_tracer("t").start_span("chat")
        span.set_attribute("gen_ai.request.model", "gpt-5-mini")
        assert provider.force_flush()

    assert store.written[0].attributes == {"gen_ai.request.model": "gpt-5-mini"}


def test_span_that_ends_before_its_start_is_sent_is_sent_once(tmp_path: Path) -> None:
    with processing(tmp_path) as (provider, store):
        tracer = provider.get_tracer("t")
        _keep_busy(provider, store)
        for _ in range(2 * BATCH_SPANS):
            tracer.start_span("short").end()
        store.may_answer.set()
        assert provider.force_flush()

    assert store.names[1:] == ["short"] * 2 * BATCH_SPANS
    assert all(each.end for each in store.written)


def test_unsampled_spans_are_not_sent(tmp_path: Path) -> None:
    with processing(tmp_path) as (_, store):
        provider = TracerProvider(sampler=ParentBased(ALWAYS_OFF), shutdown_on_exit=False)
        provider.add_span_processor(TracerSpanProcessor(store.tracing))
        with provider.get_tracer("t").start_as_current_span("unseen"):
            pass
        assert provider.force_flush()

    assert store.written == []


async def test_hanging_tool_is_shown_as_running(tmp_path: Path) -> None:
    is_waiting, may_go_on = asyncio.Event(), asyncio.Event()

    async def measure(where: str) -> str:
        is_waiting.set()
        await may_go_on.wait()
        return "121/79"

    with processing(tmp_path) as (provider, store):
        agent = _instrumented(
            Agent(
                scripted(calls(("measure", '{"where":"left"}', "call_0")), "done"),
                name="nurse",
                tools=[measure],
            ),
            provider,
        )
        run = asyncio.create_task(agent.run("How is p-1?"))
        await asyncio.wait_for(is_waiting.wait(), DEADLINE_SECONDS)
        assert await asyncio.to_thread(provider.force_flush)
        while_it_hangs = await tree_of(store)
        may_go_on.set()
        await run
        assert await asyncio.to_thread(provider.force_flush)
        at_the_end = await tree_of(store)

    assert outline(while_it_hangs) == [
        "plan of nurse: running",
        "  round: succeeded",
        '    measure({"where":"left"}): running',
    ]
    assert outline(at_the_end) == [
        "plan of nurse: succeeded",
        "  round: succeeded",
        '    measure({"where":"left"}): succeeded',
        "  round: succeeded",
    ]


async def test_scenario_run_gives_the_expected_tree(tmp_path: Path) -> None:
    wanted = scenario()
    with processing(tmp_path) as (provider, store):
        settings = InstrumentationSettings(tracer_provider=provider)
        Agent.instrument_all(settings)
        try:
            await planner_of([wanted]).run(wanted.prompt)
        finally:
            Agent.instrument_all(False)
        assert await asyncio.to_thread(provider.force_flush)

        assert_scenario(await tree_of(store), wanted, VERSION)


def test_spans_are_written_once_after_an_outage(tmp_path: Path) -> None:
    with processing(tmp_path) as (provider, store):
        store.is_down = True
        with provider.get_tracer("t").start_as_current_span("kept"):
            pass
        _until(lambda: not provider.force_flush(1) and store.reached.is_set())
        store.is_down = False

        assert provider.force_flush(int(DEADLINE_SECONDS * 1000))
        assert store.names == ["kept"]


def test_dropped_batch_is_logged_without_payloads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with processing(tmp_path) as (provider, store):
        tracer = provider.get_tracer("t")
        store.breaks = True
        with tracer.start_as_current_span("lost"):
            pass
        assert provider.force_flush()
        store.breaks = False
        with tracer.start_as_current_span("kept"):
            pass
        assert provider.force_flush()

    assert store.names == ["kept"]
    assert _lost(caplog) == Counter(spans=1)
    assert "a payload" not in str([vars(record) for record in caplog.records])


def test_full_queue_drops_span_starts_then_oldest_spans_and_logs_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with processing(tmp_path, max_waiting=4) as (provider, store):
        tracer = provider.get_tracer("t")
        _keep_busy(provider, store)
        open_spans = [tracer.start_span(f"open {each}") for each in range(3)]
        for each in range(5):
            tracer.start_span(f"short {each}").end()
        store.may_answer.set()
        assert provider.force_flush()
        lost = _lost(caplog)
        for span in open_spans:
            span.end()
        assert provider.force_flush()

    assert store.names[1:5] == ["short 1", "short 2", "short 3", "short 4"]
    assert sorted(store.names[5:]) == ["open 0", "open 1", "open 2"]
    assert (lost["starts"], lost["spans"]) == (4, 1)


def test_ending_a_span_never_waits_for_a_hanging_store(tmp_path: Path) -> None:
    with processing(tmp_path, max_waiting=10) as (provider, store):
        _keep_busy(provider, store)
        ended = threading.Event()

        def work() -> None:
            for _ in range(1000):
                with provider.get_tracer("t").start_as_current_span("more"):
                    pass
            ended.set()

        threading.Thread(target=work).start()
        assert ended.wait(DEADLINE_SECONDS)
        assert not store.may_answer.is_set()


def test_spans_of_many_threads_are_all_written(tmp_path: Path) -> None:
    with processing(tmp_path) as (provider, store):

        def work() -> None:
            for _ in range(200):
                with provider.get_tracer("t").start_as_current_span("one"):
                    pass

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert provider.force_flush()

    ended = [each.span_id for each in store.written if each.end]
    assert len(ended) == len(set(ended)) == 8 * 200


def test_shutdown_sends_queued_spans_and_accepts_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with processing(tmp_path) as (provider, store):
        tracer = provider.get_tracer("t")
        tracer.start_span("kept").end()
        provider.shutdown()
        for _ in range(3):
            tracer.start_span("late").end()

        assert store.names == ["kept"]
    assert _lost(caplog) == Counter(starts=1)  # and no word of the others


def test_closing_the_connection_sends_queued_spans(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Closing waits for the delay.
    with processing(tmp_path, delay_seconds=0.5) as (provider, store):
        tracer = provider.get_tracer("t")
        tracer.start_span("kept").end()
        store.tracing.close()
        tracer.start_span("late").end()

        assert store.names == ["kept"]
        assert provider.force_flush()
    assert _lost(caplog) == Counter(starts=1)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_process_starts_with_an_empty_queue(tmp_path: Path) -> None:
    with processing(tmp_path) as (provider, store):
        tracer = provider.get_tracer("t")
        _keep_busy(provider, store)
        tracer.start_span("of the parent").end()
        child = os.fork()
        if child == 0:
            signal.alarm(int(DEADLINE_SECONDS))
            # The child's store is a copy, whose gate the parent's threads do not hold.
            store.written.clear()
            store.may_answer.set()
            tracer.start_span("of the child").end()
            is_right = provider.force_flush() and store.names == ["of the child"]
            os._exit(0 if is_right else 1)
        _, status = os.waitpid(child, 0)
        store.may_answer.set()
        assert provider.force_flush()

    assert os.waitstatus_to_exitcode(status) == 0
    assert store.names == ["busy", "of the parent"]


def test_span_that_cannot_be_encoded_is_dropped_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with processing(tmp_path) as (provider, store):
        tracer = provider.get_tracer("t")
        odd = tracer.start_span("odd", start_time=-1)
        odd.end()
        tracer.start_span("sound").end()
        assert provider.force_flush()

    assert store.names == ["sound"]
    assert "span_not_encoded" in caplog.text


def _keep_busy(provider: TracerProvider, store: SpansStore) -> None:
    """Let the store be asked, and not answer."""
    store.may_answer.clear()
    provider.get_tracer("t").start_span("busy").end()
    _until(lambda: not provider.force_flush(1) and store.reached.is_set())


def _instrumented(agent: Agent[None, str], provider: TracerProvider) -> Agent[None, str]:
    agent.instrument = InstrumentationSettings(tracer_provider=provider)
    return agent
