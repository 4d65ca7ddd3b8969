"""Statistics of tool calls over HTTP."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import quote

from tests.api.conftest import Api
from tests.contract.moments import Moments
from tests.otel.made_traces import agent, spans_from, tool
from tests.sample_runs import START, sample_run


async def test_statistics_list_the_figures_of_every_tool(api: Api) -> None:
    run = await api.record(sample_run(sub_plans=3))

    page: Any = await api.read("/api/stats/tools")

    assert [(tool["name"], tool["calls"], tool["subPlans"]) for tool in page["items"]] == [
        ("check", 3, 3),
        ("measure", 1, 0),
    ]
    [check] = (await api.get("/api/stats/tools", name="check")).json()["items"]
    assert check == page["items"][0]
    assert (check["toolType"], check["failureRate"], check["running"]) == ("SUBPLAN", 0.0, 0)
    assert page["items"][1]["failureRate"] == 1.0
    history: Any = await api.read("/api/stats/tools/measure")
    counts = page["items"][1].pop("buckets")
    assert counts == [{"at": "2026-01-01T12:00:00Z", "calls": 1, "failed": 1}]
    assert page["bucketSeconds"] == 1
    assert history["stats"] == page["items"][1]
    [failure] = history["latestFailed"]
    assert (failure["toolCallId"], failure["rootPlanId"]) == (str(run.failed_call), str(run.root))
    assert failure["reason"] == "tool_error"
    assert failure["error"] == {
        "type": "ValueError",
        "message": "the cuff is loose",
        "stack": None,
    }
    assert [bucket["calls"] for bucket in history["buckets"]] == [1]


async def test_failed_call_without_an_error_type_shows_its_message(api: Api) -> None:
    spans = spans_from(agent(1, "nurse"), tool(2, "measure", parent=1, failed="the cuff is loose"))
    await api.record_spans(spans)

    history: Any = await api.read("/api/stats/tools/measure")
    [failure] = history["latestFailed"]
    call: Any = await api.read(f"/api/tool-calls/{failure['toolCallId']}")

    assert failure["error"] == {"type": None, "message": "the cuff is loose", "stack": None}
    assert call["error"] == failure["error"]


async def test_time_range_includes_its_start_and_excludes_its_end(api: Api) -> None:
    await api.record(sample_run())

    def moment(text: str) -> dict[str, str]:
        return {text: START.isoformat()}

    assert (await api.read("/api/stats/tools", **moment("to")))["items"] == []
    assert len((await api.get("/api/stats/tools", **moment("from"))).json()["items"]) == 2
    answer = await api.get("/api/stats/tools/measure", **moment("to"))
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_history_is_found_for_tool_names_with_special_characters(api: Api) -> None:
    names = ["a/b", "?q=1", "é 字", "..", "", "<b>"]
    for name in names:
        await api.writer.write([Moments().call_started(name=name)])

    found = []
    for name in names:
        path = f"/api/stats/tools/{quote(name, safe='').replace('.', '%2E')}"
        history: Any = await api.read(path)
        found.append(history["stats"]["name"])

    assert found == names


async def test_calls_outside_the_time_range_are_not_counted(api: Api) -> None:
    await api.record(sample_run())
    earlier, later = ((START + timedelta(days=days)).isoformat() for days in (-1, 1))

    for out_of_range in ({"to": earlier}, {"from": later}):
        page = await api.read("/api/stats/tools", **out_of_range)
        assert page == {"items": [], "bucketSeconds": 0, "asOf": None}
        answer = await api.get("/api/stats/tools/measure", **out_of_range)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
        assert "with the name 'measure'" in answer.json()["detail"]
    for within in ({}, {"from": earlier, "to": later}):
        assert len((await api.get("/api/stats/tools", **within)).json()["items"]) == 2
