"""Events in Python and on the wire: accepted, normalised and rejected fields."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from tests.sample_runs import START, sample_run
from tracer.records import Status, new_id, sequential_ids
from tracer.records.events import (
    EVENT,
    FROM_THE_WIRE,
    PlanStarted,
    ThoughtRecorded,
    ThoughtStarted,
    ToolCallFinished,
    ToolCallStarted,
    event_json,
)

ROOT, OTHER = new_id(), new_id()
CALL: dict[str, Any] = {
    "at": START,
    "root_plan_id": ROOT,
    "plan_id": ROOT,
    "step_id": OTHER,
    "tool_call_id": new_id(),
}


def error_of(event: type[BaseModel], fields: dict[str, Any]) -> str:
    """Return the error that validating an event raises."""
    try:
        event.model_validate(fields)
    except ValidationError as error:
        return str(error)
    return "accepted"


def not_rejected(
    event: type[BaseModel], base: dict[str, Any], name: str, values: list[Any]
) -> list[str]:
    """Return a line for each value of a field for which validation reports no error."""
    return [
        f"{name}={value!r}: {error}"
        for value in values
        if f"\n{name}\n" not in (error := error_of(event, {**base, name: value}))
    ]


def test_every_event_survives_encoding_and_decoding() -> None:
    for event in sample_run().events:
        assert EVENT.validate_json(event_json(event)) == event


@given(st.text(st.characters(codec=None)))
def test_any_string_survives_encoding_and_decoding(text: str) -> None:
    event = ToolCallFinished(**CALL, status=Status.SUCCEEDED, result=text)
    wire = EVENT.dump_python(event, mode="json", by_alias=True)

    assert EVENT.validate_json(event_json(event)) == event
    assert EVENT.validate_python(wire, context=FROM_THE_WIRE) == event


def test_stored_text_is_not_escaped_again_when_an_event_is_decoded() -> None:
    made = ToolCallFinished(**CALL, status=Status.SUCCEEDED, result="␛0000")

    assert made.result == "␛241b0000"
    assert event_json(made).decode().count("␛241b0000") == 1
    assert EVENT.validate_json(event_json(made)) == made


def test_plan_with_missing_or_contradictory_parent_ids_is_rejected() -> None:
    table: list[tuple[dict[str, UUID], str]] = [
        ({"plan_id": ROOT, "tool_call_id": OTHER}, "a root plan"),
        ({"plan_id": ROOT, "parent_plan_id": OTHER}, "a root plan"),
        ({"plan_id": OTHER}, "a sub-plan must have"),
        ({"plan_id": OTHER, "parent_plan_id": ROOT}, "a sub-plan must have"),
        (
            {
                "plan_id": OTHER,
                "parent_plan_id": ROOT,
                "tool_call_id": ROOT,
                "opened_by_step_id": ROOT,
            },
            "a sub-plan must have",
        ),
        (
            {"plan_id": OTHER, "parent_plan_id": OTHER, "tool_call_id": ROOT},
            "must not be its own parent",
        ),
    ]
    base = {"at": START, "root_plan_id": ROOT}
    failures = [
        f"{sorted(fields)}: expected {expected!r}, got {error}"
        for fields, expected in table
        if expected not in (error := error_of(PlanStarted, base | fields))
    ]
    assert failures == []


def test_time_without_zone_or_outside_the_calendar_is_rejected() -> None:
    times = [
        "2026-01-01T00:00:00",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "yesterday",
        "0.5",
        1767225600,
        None,
        float("nan"),
    ]
    assert not_rejected(ToolCallStarted, {**CALL, "name": "measure"}, "at", times) == []


def test_times_are_converted_to_utc() -> None:
    event = ToolCallStarted.model_validate(
        {**CALL, "at": "2026-01-01T08:00:00.123456+08:00", "name": "measure"}
    )

    assert event.at == datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
    assert event.at.utcoffset() == timedelta(0)


def test_messages_that_are_no_array_are_rejected() -> None:
    messages = ["{}", "[", "", "null", {"role": "user"}, 7]
    assert not_rejected(ThoughtStarted, {**_thought(), "position": 0}, "messages", messages) == []


def test_messages_can_be_a_json_array_or_its_text() -> None:
    array = [{"role": "user", "content": "wie geht's? \0 \ud800"}]

    event = ThoughtStarted.model_validate({**_thought(), "position": 0, "messages": array})

    assert event.messages == r"""[{"role":"user","content":"wie geht's? \u0000 \ud800"}]"""
    again = ThoughtStarted.model_validate(
        {**_thought(), "position": 0, "messages": '[{"role":"user"}]'}
    )
    assert again.messages == '[{"role":"user"}]'


def test_an_invalid_cost_is_rejected() -> None:
    costs = ["-1", "NaN", "Infinity", "1e9", "0.0000000000001"]
    assert not_rejected(ThoughtRecorded, _ended_thought(), "cost_usd", costs) == []


def test_an_invalid_number_of_tokens_is_rejected() -> None:
    tokens = [-1, 2**40, 2**53, "many"]
    assert not_rejected(ThoughtRecorded, _ended_thought(), "input_tokens", tokens) == []


def test_an_invalid_position_is_rejected() -> None:
    assert not_rejected(ThoughtStarted, _thought(), "position", [-1, 2**31, "first"]) == []


def test_equal_costs_are_encoded_equally() -> None:
    spelled = {"0.10": "0.1", "0": "0", "0.0": "0", "120": "120", "1e2": "100"}
    events = [
        ThoughtRecorded.model_validate({**_ended_thought(), "cost_usd": cost}) for cost in spelled
    ]
    assert [str(event.cost_usd) for event in events] == list(spelled.values())


def test_end_event_with_an_invalid_field_is_rejected() -> None:
    endings: list[dict[str, Any]] = [
        {"status": "running"},
        {"status": "abandoned"},
        {"status": "failed", "reason": "Not a Reason"},
        {"status": "failed", "attempt": 0},
        {"status": "failed", "attempt": 2**31},
        {"status": "failed", "surprise": 1},
        {"status": "failed", "parent_tool_call_id": CALL["tool_call_id"]},
        {"status": "failed", "step_id": "call_0"},
    ]
    errors = [error_of(ToolCallFinished, CALL | fields) for fields in endings]
    failures = [
        f"{fields}: {error}"
        for fields, error in zip(endings, errors, strict=True)
        if error == "accepted"
    ]
    assert failures == []


def test_still_running_false_is_stored_as_none() -> None:
    fields = [{"stillRunning": fact} for fact in (True, False, None)] + [{}]
    wire = {"type": "tool_call_finished", "status": "failed", **CALL}
    events = [EVENT.validate_python(wire | each) for each in fields]

    assert [getattr(event, "still_running", ...) for event in events] == [True, None, None, None]


def test_state_changes_that_are_no_array_are_rejected() -> None:
    changes = ["{}", "", {"op": "set"}, 7]
    ended = {**CALL, "status": "failed"}
    assert not_rejected(ToolCallFinished, ended, "state_changes", changes) == []


def test_sequential_ids_sort_in_the_order_of_creation() -> None:
    mint = sequential_ids()
    ids = [mint() for _ in range(300)]

    assert ids == sorted(ids)
    assert {i.version for i in ids} == {7}


def _ended_thought() -> dict[str, Any]:
    return {**_thought(), "status": "succeeded"}


def _thought() -> dict[str, Any]:
    return {
        "at": START,
        "root_plan_id": ROOT,
        "plan_id": ROOT,
        "step_id": OTHER,
        "think_act_id": OTHER,
    }
