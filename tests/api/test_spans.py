"""The original spans of a run: all are returned unchanged, with the ids of their records."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from tests.api.conftest import Api
from tests.otel.captured import spans_of
from tests.otel.made_traces import TRACE_ID, make_span, spans_from
from tests.sample_runs import sample_run
from tracer.records import new_id, span_id
from tracer.records.spans import Span

ONE_RUN = "pydantic-ai-default-single"
CALL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "measure"}
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "nurse"}


async def written(api: Api, spans: list[Span]) -> str:
    await api.record_spans(spans)
    return str(UUID(bytes=spans[0].trace_id))


async def listed(api: Api, run: str, **parameters: str | int) -> list[Any]:
    page: Any = await api.read(f"/api/runs/{run}/spans", limit=500, **parameters)
    assert page["nextCursor"] is None
    items = page["items"]
    assert isinstance(items, list)
    return items


async def test_every_span_of_a_capture_is_returned_with_its_attributes(api: Api) -> None:
    spans = spans_of(ONE_RUN)

    items = await listed(api, await written(api, spans))

    by_id = {span.span_id.hex(): span for span in spans}
    assert len(items) == len(by_id)
    assert [each["startTimeUnixNano"] for each in items] == sorted(
        (str(span.start) for span in by_id.values()), key=int
    )
    for each in items:
        span = by_id[each["spanId"]]
        assert each["attributes"] == span.attributes
        assert each["resource"] == span.resource
        assert (each["name"], each["scope"]) == (span.name, span.scope)
        assert each["endTimeUnixNano"] == str(span.end)
        assert len(each["events"]) == len(span.events)


async def test_each_span_has_the_id_of_its_record_or_enclosing_record(api: Api) -> None:
    run = await written(
        api,
        spans_from(
            make_span(1, "invoke_agent nurse", AGENT, at=(0, 9)),
            make_span(2, "POST /tools", {"http.method": "POST"}, parent=1, at=(1, 8)),
            make_span(3, "execute_tool measure", CALL, parent=2, at=(2, 7)),
            make_span(4, "SELECT", {"db.system": "sqlite"}, parent=3, at=(3, 4)),
        ),
    )
    tree: Any = await api.read(f"/api/plans/{run}/tree")
    (step,) = tree["agentExecutions"]
    (call,) = step["toolCalls"]

    items = await listed(api, run)

    assert [(each["spanId"][-1], each["record"]["id"]) for each in items] == [
        ("1", step["stepId"]),
        ("2", step["stepId"]),
        ("3", call["toolCallId"]),
        ("4", call["toolCallId"]),
    ]
    of_call = await listed(api, run, recordId=call["toolCallId"])
    assert [each["spanId"][-1] for each in of_call] == ["3", "4"]
    of_step = await listed(api, run, recordId=step["stepId"])
    of_plan = await listed(api, run, recordId=run)
    assert [each["spanId"][-1] for each in of_step] == ["1", "2"]
    assert of_plan == of_step
    assert await listed(api, run, recordId=str(new_id())) == []


async def test_tool_server_spans_belong_to_the_call_that_is_their_parent(api: Api) -> None:
    run = await api.record(sample_run(sub_plans=1))
    call = run.failed_call
    served = {**make_span(7, "measure", {"rpc.system": "mcp"}), "traceId": run.root.hex}
    spans = [
        {**served, "parentSpanId": span_id(call)},
        {**served, "spanId": "ab" * 8, "parentSpanId": served["spanId"], "name": "below"},
        {**served, "spanId": "cd" * 8, "name": "nobody's", "parentSpanId": "ef" * 8},
    ]
    await api.record_spans(spans_from(*spans))

    items = await listed(api, str(run.root))

    of_call = {"kind": "toolCall", "id": str(call)}
    assert {each["name"]: each["record"] for each in items} == {
        "measure": of_call,
        "below": of_call,
        "nobody's": None,
    }
    assert len(await listed(api, str(run.root), recordId=str(call))) == 2


async def test_later_span_changes_the_record_that_an_earlier_span_belongs_to(api: Api) -> None:
    agent = make_span(1, "invoke_agent nurse", AGENT, at=(0, 9))
    wrapper = make_span(2, "POST /tools", {"http.method": "POST"}, parent=3, at=(2, 8))
    run = await written(api, spans_from(agent, wrapper))
    (_, before) = await listed(api, run)
    assert (await listed(api, run))[1] == before

    await written(api, spans_from(make_span(3, "execute_tool measure", CALL, parent=1, at=(1, 9))))

    (_, call, after) = await listed(api, run)
    assert call["record"]["kind"] == "toolCall"
    assert after == {**before, "record": call["record"]}
    assert await listed(api, run, recordId=call["record"]["id"]) == [call, after]


async def test_span_list_is_empty_without_spans_and_404_without_a_run(
    api: Api,
) -> None:
    run = await api.record(sample_run())

    assert await listed(api, str(run.root)) == []
    missing = await api.get(f"/api/runs/{new_id()}/spans")
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


async def test_spans_are_listed_in_pages(api: Api) -> None:
    run = await written(api, spans_of(ONE_RUN))
    whole = await listed(api, run)

    seen: list[Any] = []
    cursor: dict[str, str] = {}
    while True:
        page: Any = await api.read(f"/api/runs/{run}/spans", limit=7, **cursor)
        seen += page["items"]
        if page["nextCursor"] is None:
            break
        cursor = {"cursor": page["nextCursor"]}

    assert seen == whole


async def test_malformed_span_cursor_is_rejected(api: Api) -> None:
    run = await api.record(sample_run())
    for cursor in ("", "x", "12", "zz-00", "1-zz"):
        response = await api.get(f"/api/runs/{run.root}/spans", cursor=cursor)

        assert (response.status_code, response.json()["code"]) == (400, "bad_cursor"), cursor


async def test_attribute_values_that_json_cannot_encode_are_returned_as_text(api: Api) -> None:
    values = {
        "bytes": {"bytesValue": "AP8="},
        "large": {"intValue": str(2**63 - 1)},
        "small": {"intValue": str(-(2**53) + 1)},
        "nan": {"doubleValue": "NaN"},
        "nul": {"stringValue": "a\0b"},
        "list": {"arrayValue": {"values": [{"boolValue": True}, {}]}},
        "map": {"kvlistValue": {"values": [{"key": "k", "value": {"doubleValue": 0.5}}]}},
    }
    attributes = [{"key": name, "value": value} for name, value in values.items()]
    span = {
        **make_span(1, "x"),
        "attributes": attributes,
        "events": [{"name": "moment", "timeUnixNano": "0", "attributes": attributes}],
        "links": [{"traceId": TRACE_ID, "spanId": "ab" * 8, "attributes": attributes}],
        "kind": 9,
        "status": {"code": 2, "message": "gone"},
        "startTimeUnixNano": "1763763712462812345",
        "endTimeUnixNano": "0",
    }

    run = await written(api, spans_from(span))
    (shown,) = await listed(api, run)

    expected = {
        "bytes": "AP8=",
        "large": str(2**63 - 1),
        "small": -(2**53) + 1,
        "nan": "nan",
        "nul": "a␛0000b",
        "list": [True, None],
        "map": {"k": 0.5},
    }
    assert shown["attributes"] == expected
    assert shown["events"] == [
        {"name": "moment", "at": None, "timeUnixNano": "0", "attributes": expected}
    ]
    assert shown["links"] == [{"traceId": TRACE_ID, "spanId": "ab" * 8, "attributes": expected}]
    assert (shown["startTimeUnixNano"], shown["startedAt"]) == (
        "1763763712462812345",
        "2025-11-21T22:21:52.462812Z",
    )
    assert (shown["endTimeUnixNano"], shown["finishedAt"]) == ("0", None)
    assert (shown["statusCode"], shown["statusMessage"]) == ("error", "gone")
    assert shown["record"] == {"kind": "plan", "id": run}


async def test_traces_without_agent_work_are_listed_only_with_other_traces(api: Api) -> None:
    run = await written(api, spans_from(make_span(1, "GET /", {"http.method": "GET"})))

    async def runs(**parameters: str) -> list[str]:
        page: Any = await api.read("/api/runs", **parameters)
        return [each["rootPlanId"] for each in page["items"]]

    assert await runs() == []
    assert await runs(otherTraces="true") == [run]
    assert len(await listed(api, run)) == 1
