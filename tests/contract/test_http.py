"""The storage contract over HTTP: one test per method and per refusal code.

Writes go through `HttpWriter`; reads go through the REST API of a server in this process. The store
behind it is Postgres. The promises of each method are tested on the stores themselves: the
thorough profile runs those tests over HTTP as well.

`read_changes` and `read_revisions` serve the live stream of a run: see `tests/api/test_live.py`.
Status codes that mean "try again later" are in `tests/storage/test_http_writer.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import httpx2
import pytest

from tests.contract.moments import Moments
from tests.contract.stores import (
    NewStore,
    Store,
    all_records,
    postgres_stores,
    serving,
)
from tests.contract.transfers import export_of
from tests.otel.captured import moved, spans_of
from tests.otel.sent import traces_of
from tests.sample_runs import SampleRun, sample_run
from tests.stored import read_spans
from tests.trees import Node, complete
from tracer.errors import BadRequest, RecordNotFound, RunNotActive, SchemaOutOfDate
from tracer.records import Status, new_id
from tracer.records.events import Event
from tracer.records.spans import Span
from tracer.storage.http import HttpWriter
from tracer.storage.postgres import open_pool
from tracer.store import Erasure, WriteAnswer

CAPTURE = "pydantic-ai-default-single"


@dataclass(frozen=True)
class Served(Store):
    """A store whose writer is an `HttpWriter`, and a client of its server."""

    writer: HttpWriter
    client: httpx2.AsyncClient

    async def get(self, path: str, **parameters: Any) -> Any:
        answer = await self.client.get(path, params=parameters)
        assert answer.status_code == 200, answer.text[:500]
        return complete(answer.json()) if path.endswith("/tree") else answer.json()

    async def problem(self, path: str, **parameters: Any) -> tuple[int, str]:
        """Return the status and the problem code of a request that fails."""
        answer = await self.client.get(path, params=parameters)
        return answer.status_code, answer.json().get("code")

    async def record_spans(self, *requests: Iterable[Span]) -> None:
        await super().record_spans(*requests)
        await self.project()

    async def record_sample(self, **options: Any) -> SampleRun:
        run = sample_run(**options)
        await self.record(*run.events)
        return run


@pytest.fixture
async def served(database_url: str) -> AsyncIterator[Served]:
    async with open_pool(database_url) as pool:
        behind = postgres_stores(pool)()
        transport = serving(behind)
        async with (
            aclosing(HttpWriter("http://tracer", transport=transport)) as writer,
            httpx2.AsyncClient(base_url="http://tracer", transport=transport) as client,
        ):
            yield Served(writer, behind.reader, behind.projection, client)


def refusals(answer: WriteAnswer) -> list[tuple[int, str]]:
    return [(each.index, each.code) for each in answer.refused]


def run_of(spans: Sequence[Span]) -> UUID:
    return UUID(bytes=spans[0].trace_id)


# --- Methods of TraceWriter -----------------------------------------------------------------------


async def test_events_written_over_http_give_the_same_records_as_a_direct_write(
    served: Served, new_postgres_store: NewStore
) -> None:
    run, direct = sample_run(), new_postgres_store()
    await direct.record(*run.events)

    assert await served.writer.write([]) == WriteAnswer(0)
    assert await served.writer.write(run.events) == WriteAnswer(len(run.events))

    assert await all_records(served) == await all_records(direct)


async def test_spans_written_over_http_give_the_same_records_as_a_direct_write(
    served: Served, new_postgres_store: NewStore
) -> None:
    spans, direct = spans_of(CAPTURE), new_postgres_store()
    await direct.record_spans(spans)

    assert await served.writer.write_spans([]) == WriteAnswer(0)
    assert await served.writer.write_spans(traces_of(spans)) == WriteAnswer(len(spans))
    await served.project()

    assert await all_records(served) == await all_records(direct)
    assert await read_spans(served.reader, run_of(spans)) == (
        await read_spans(direct.reader, run_of(spans))
    )


async def test_renew_returns_the_lease_that_read_leases_returns(served: Served) -> None:
    recorder_id, run = new_id(), Moments()
    await served.record(run.plan_started().model_copy(update={"recorder_id": recorder_id}))

    lease = await served.writer.renew(recorder_id)

    assert [lease] == await served.reader.read_leases(run.root)


async def test_delete_run_deletes_the_run_and_raises_not_found_the_second_time(
    served: Served,
) -> None:
    run, other = await served.record_sample(), await served.record_sample()

    await served.writer.delete_run(run.root)

    assert (await served.reader.read_run(other.root)).root_plan_id == other.root
    with pytest.raises(RecordNotFound):
        await served.reader.read_run(run.root)
    with pytest.raises(RecordNotFound):
        await served.writer.delete_run(run.root)


async def test_delete_subject_deletes_its_runs_and_returns_their_number(served: Served) -> None:
    subject = "p/1 ü\\u0000\0\ud800?"
    run, other = Moments(), Moments()
    await served.record(run.plan_started(subject=subject), run.call_started())
    await served.record(other.plan_started(subject="p"))

    assert await served.writer.delete_subject(subject) == Erasure(runs=1, records=3)
    assert await served.writer.delete_subject(subject) == Erasure()
    assert (await served.reader.read_run(other.root)).subject == "p"


async def test_request_cancel_returns_the_run_with_the_time_of_the_request(served: Served) -> None:
    run = Moments()
    await served.record(run.plan_started(title="Weekly review"))

    answer = await served.writer.request_cancel(run.root)

    stored = await served.reader.read_run(run.root)
    assert answer.cancel_requested_at is not None
    shown = answer.model_dump(exclude={"project_id"})
    assert shown.items() <= stored.model_dump(exclude={"project_id"}).items()


# --- Refusal codes --------------------------------------------------------------------------------


async def test_events_of_a_deleted_run_are_rejected_as_run_deleted(served: Served) -> None:
    deleted, other = Moments(), Moments()
    await served.record(deleted.plan_started())
    await served.writer.delete_run(deleted.root)

    answer = await served.writer.write(
        [deleted.call_started(), other.plan_started(), deleted.plan_finished()]
    )

    assert (answer.stored, refusals(answer)) == (1, [(0, "run_deleted"), (2, "run_deleted")])
    assert (await served.reader.read_run(other.root)).status is Status.RUNNING


async def test_spans_of_a_deleted_run_are_rejected_as_run_deleted(served: Served) -> None:
    deleted, other = spans_of(CAPTURE), spans_of("agno-openinference-single")
    await served.record_spans(deleted)
    await served.writer.delete_run(run_of(deleted))

    answer = await served.writer.write_spans(
        [*traces_of(deleted[:1]), *traces_of(other), *traces_of(deleted[1:2])]
    )

    last = len(other) + 1
    assert refusals(answer) == [(0, "run_deleted"), (last, "run_deleted")]
    assert answer.stored == len(other)
    assert (await served.reader.read_run(run_of(other))).tool_calls == 8


async def test_events_for_a_run_of_spans_are_rejected(served: Served) -> None:
    run, other = Moments(), Moments()
    await served.record_spans(moved(each, run.root.bytes) for each in spans_of(CAPTURE))

    answer = await served.writer.write([run.plan_started(), other.plan_started()])

    assert (answer.stored, refusals(answer)) == (1, [(0, "run_of_spans")])


async def test_event_with_a_field_out_of_range_is_rejected_as_invalid(
    served: Served,
) -> None:
    run = Moments()
    invalid: Event = run.call_started().model_copy(update={"position": -1})

    answer = await served.writer.write([run.plan_started(), invalid, run.step_started()])

    assert (answer.stored, refusals(answer)) == (2, [(1, "invalid_event")])
    assert "position" in answer.refused[0].detail


async def test_span_with_an_empty_trace_id_is_rejected_as_invalid(served: Served) -> None:
    spans = spans_of(CAPTURE)

    parts = spans[:1], [moved(spans[1], bytes(16))], spans[2:3]
    answer = await served.writer.write_spans([trace for part in parts for trace in traces_of(part)])

    assert (answer.stored, refusals(answer)) == (2, [(1, "invalid_span")])
    assert "trace id" in answer.refused[0].detail


async def test_reading_a_missing_run_over_http_raises_not_found(served: Served) -> None:
    missing = new_id()
    with pytest.raises(RecordNotFound, match=str(missing)):
        await served.writer.delete_run(missing)
    with pytest.raises(RecordNotFound, match=str(missing)):
        await served.writer.request_cancel(missing)
    paths = [f"/api/runs/{missing}{part}" for part in ("", "/leases", "/spans", "/export")]
    paths += [f"/api/plans/{missing}{part}" for part in ("", "/tree")]
    paths += [f"/api/{kind}/{missing}" for kind in ("think-acts", "tool-calls")]
    answers = {path: await served.problem(path) for path in paths}
    assert {path: each for path, each in answers.items() if each != (404, "not_found")} == {}


async def test_cancelling_an_ended_run_is_rejected_as_run_not_active(served: Served) -> None:
    run = Moments()
    await served.record(run.plan_started(), run.plan_finished(status=Status.FAILED))
    with pytest.raises(RunNotActive):
        await served.writer.request_cancel(run.root)
    assert (await served.reader.read_run(run.root)).cancel_requested_at is None


async def test_deleting_a_masked_subject_is_rejected_as_bad_request(served: Served) -> None:
    with pytest.raises(BadRequest, match="card_number"):
        await served.writer.delete_subject("4111 1111 1111 1111")


async def test_invalid_cursor_is_rejected_as_bad_cursor(served: Served) -> None:
    for path in ("/api/runs", "/api/tool-calls"):
        assert await served.problem(path, cursor="nonsense") == (400, "bad_cursor"), path


async def test_database_without_migrations_gets_schema_out_of_date(
    empty_database_url: str,
) -> None:
    async with open_pool(empty_database_url) as pool:
        transport = serving(postgres_stores(pool)())
        async with aclosing(HttpWriter("http://tracer", transport=transport)) as writer:
            with pytest.raises(SchemaOutOfDate):
                await writer.write([Moments().plan_started()])


# --- Methods of TraceReader -----------------------------------------------------------------------


async def test_list_runs_pages_through_the_runs_in_the_chosen_order(served: Served) -> None:
    runs = [await served.record_sample() for _ in range(3)]

    first = await served.get("/api/runs", sort="start", limit=2)
    second = await served.get("/api/runs", sort="start", limit=2, cursor=first["nextCursor"])

    listed = [item["rootPlanId"] for page in (first, second) for item in page["items"]]
    assert listed == [str(run.root) for run in runs]
    in_other_order = {"sort": "-start", "cursor": first["nextCursor"]}
    assert await served.problem("/api/runs", **in_other_order) == (400, "bad_cursor")
    assert (await served.client.get("/api/runs", params={"sort": "title"})).status_code == 422


async def test_count_runs_returns_a_histogram_of_the_filtered_runs(served: Served) -> None:
    await served.record_sample()
    await served.record_sample(finished=False)

    counted = await served.get("/api/runs/histogram", status="succeeded")

    assert (counted["count"], counted["countedBackTo"]) == (1, None)
    [interval] = counted["bins"]
    assert (interval["runs"], interval["failed"]) == (1, 0)


async def test_list_runs_pages_through_the_filtered_runs_newest_first(served: Served) -> None:
    runs = [await served.record_sample() for _ in range(3)]
    await served.record_sample(finished=False)

    first = await served.get("/api/runs", status="succeeded", limit=2)
    second = await served.get("/api/runs", status="succeeded", limit=2, cursor=first["nextCursor"])

    listed = [item["rootPlanId"] for page in (first, second) for item in page["items"]]
    assert listed == [str(run.root) for run in reversed(runs)]
    assert second["nextCursor"] is None


async def test_read_run_returns_the_totals_of_the_run(served: Served) -> None:
    run = await served.record_sample()
    shown = await served.get(f"/api/runs/{run.root}")
    stored = await served.reader.read_run(run.root)
    assert (shown["rootPlanId"], shown["status"]) == (str(run.root), "succeeded")
    assert (shown["toolCalls"], shown["failures"]) == (stored.tool_calls, stored.failures) == (3, 1)
    assert (shown["inputTokens"], shown["revision"]) == (100, stored.revision)


async def test_read_plan_returns_the_tool_call_that_opened_it(served: Served) -> None:
    run = await served.record_sample()
    shown = await served.get(f"/api/plans/{run.sub_plans[1]}")
    assert (shown["title"], shown["parentPlanId"]) == ("Check 1", str(run.root))
    assert shown["parentActToolCall"]["toolCallId"] == str(run.opening_calls[1])
    assert (await served.get(f"/api/plans/{run.root}"))["parentActToolCall"] is None


async def test_read_tree_returns_each_sub_plan_below_its_tool_call(served: Served) -> None:
    run = await served.record_sample()
    tree: Node = await served.get(f"/api/plans/{run.root}/tree", payloads="full")
    calls = tree["agentExecutions"][0]["thinkActs"][0]["toolCalls"]
    found = {call["toolCallId"]: [each["planId"] for each in call["subPlans"]] for call in calls}
    assert found == {
        str(run.failed_call): [],
        **{
            str(call): [str(plan)]
            for call, plan in zip(run.opening_calls, run.sub_plans, strict=True)
        },
    }


async def test_request_with_etag_gets_304_until_the_revision_changes(served: Served) -> None:
    run = await served.record_sample(finished=False)
    path = f"/api/tool-calls/{run.failed_call}"
    known = {"If-None-Match": (await served.client.get(path)).headers["etag"]}

    unchanged = await served.client.get(path, headers=known)
    await served.writer.request_cancel(run.root)
    changed = await served.client.get(path, headers=known)

    assert (unchanged.status_code, changed.status_code) == (304, 200)


async def test_read_think_act_returns_the_messages(served: Served) -> None:
    run = await served.record_sample()
    shown = await served.get(f"/api/think-acts/{run.think_act}")
    assert shown["messages"] == '[{"role":"user","content":"Review"}]'
    assert (shown["thought"], shown["inputTokens"]) == ("I check everything at once.", 100)


async def test_read_tool_call_returns_its_lineage_and_sub_plans(served: Served) -> None:
    run = await served.record_sample()
    shown = await served.get(f"/api/tool-calls/{run.opening_calls[0]}")
    assert [each["kind"] for each in shown["lineage"]] == ["plan", "step", "thinkAct", "toolCall"]
    assert [each["planId"] for each in shown["subPlans"]] == [str(run.sub_plans[0])]


async def test_list_tool_calls_filters_the_calls_of_all_runs(served: Served) -> None:
    runs = [await served.record_sample() for _ in range(2)]
    page = await served.get("/api/tool-calls", name="measure", status="failed")
    assert {item["toolCallId"] for item in page["items"]} == {str(run.failed_call) for run in runs}


async def test_export_over_http_equals_the_export_read_from_the_store(served: Served) -> None:
    run = await served.record_sample()
    answer = await served.client.get(f"/api/runs/{run.root}/export", params={"format": "jsonl"})
    assert answer.status_code == 200
    assert answer.content == await export_of(served.reader, run.root)


async def test_read_spans_returns_pages_of_spans_in_order_of_their_start(served: Served) -> None:
    spans = spans_of(CAPTURE)
    await served.record_spans(spans)
    listed, page = [], await served.get(f"/api/runs/{run_of(spans)}/spans", limit=10)
    listed += page["items"]
    while page["nextCursor"] is not None:
        page = await served.get(
            f"/api/runs/{run_of(spans)}/spans", limit=10, cursor=page["nextCursor"]
        )
        listed += page["items"]
    in_order = sorted(spans, key=lambda span: (span.start, span.span_id))
    assert [item["spanId"] for item in listed] == [span.span_id.hex() for span in in_order]


async def test_read_leases_returns_the_lease_of_each_recorder_of_the_run(served: Served) -> None:
    recorder_id, run = new_id(), Moments()
    await served.record(run.plan_started().model_copy(update={"recorder_id": recorder_id}))
    [lease] = (await served.get(f"/api/runs/{run.root}/leases"))["items"]
    [stored] = await served.reader.read_leases(run.root)
    assert lease["recorderId"] == str(stored.recorder_id) == str(recorder_id)
    assert lease["leaseSeconds"] == stored.length.total_seconds()


async def test_read_tool_stats_counts_the_calls_of_each_tool(served: Served) -> None:
    await served.record_sample()
    items = (await served.get("/api/stats/tools"))["items"]
    counts = {item["name"]: (item["calls"], item["failed"]) for item in items}
    assert counts == {"check": (2, 0), "measure": (1, 1)}


async def test_read_tool_history_lists_the_latest_failures_of_the_tool(served: Served) -> None:
    run = await served.record_sample()
    history = await served.get("/api/stats/tools/measure")
    assert [each["toolCallId"] for each in history["latestFailed"]] == [str(run.failed_call)]
    assert await served.problem("/api/stats/tools/unknown") == (404, "not_found")


async def test_find_cancel_requests_returns_cancelled_and_deleted_runs(served: Served) -> None:
    runs = [await served.record_sample(finished=False) for _ in range(3)]
    await served.writer.request_cancel(runs[0].root)
    await served.writer.delete_run(runs[1].root)
    # More ids than one request carries.
    ids = [run.root for run in runs] + [new_id() for _ in range(150)]
    assert await served.writer.find_cancel_requests(ids) == {runs[0].root, runs[1].root}
    assert await served.writer.find_cancel_requests([]) == set()


async def test_readyz_returns_ok_while_the_store_is_reachable(served: Served) -> None:
    assert (await served.get("/readyz"))["status"] == "ok"


async def test_list_exchanges_returns_what_the_store_returns(served: Served) -> None:
    ended, failed, deleted, open_ = (Moments() for _ in range(4))
    for run in (ended, failed, deleted, open_):
        await served.record(run.plan_started(user_request="How is p-1?"))
    await served.record(
        ended.plan_finished(summary="Well."), failed.plan_finished(status=Status.FAILED)
    )
    await served.writer.delete_run(deleted.root)
    ids = [ended.root, new_id(), deleted.root, open_.root, failed.root]
    found = await served.writer.list_exchanges(ids)
    assert found == await served.reader.list_exchanges(ids)
    assert [each.answer for each in found] == ["Well.", None]
