"""Events: what may be written, in Python and on the wire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.sample_runs import START, sample_run
from tracer.events import (
    EVENT,
    FROM_THE_WIRE,
    LateEndNoted,
    PlanStarted,
    ThoughtRecorded,
    ThoughtStarted,
    ToolCallFinished,
    ToolCallStarted,
    event_json,
)
from tracer.ids import new_id, sequential_ids
from tracer.status import Status

ROOT, OTHER = new_id(), new_id()
CALL: dict[str, Any] = {
    "at": START,
    "root_plan_id": ROOT,
    "plan_id": ROOT,
    "step_id": OTHER,
    "tool_call_id": new_id(),
}


def test_every_event_comes_back_from_the_wire_as_it_was() -> None:
    for event in sample_run().events:
        assert EVENT.validate_json(event_json(event)) == event


@given(st.text(st.characters(codec=None)))
def test_any_string_survives_the_wire(text: str) -> None:
    event = ToolCallFinished(**CALL, status=Status.SUCCEEDED, result=text)
    wire = EVENT.dump_python(event, mode="json", by_alias=True)

    assert EVENT.validate_json(event_json(event)) == event
    assert EVENT.validate_python(wire, context=FROM_THE_WIRE) == event


def test_a_string_in_stored_form_is_left_alone_on_the_wire_and_escaped_in_python() -> None:
    made = ToolCallFinished(**CALL, status=Status.SUCCEEDED, result="␛0000")

    assert made.result == "␛241b0000"
    assert event_json(made).decode().count("␛241b0000") == 1
    assert EVENT.validate_json(event_json(made)) == made


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"plan_id": ROOT, "tool_call_id": OTHER}, "a root plan"),
        ({"plan_id": ROOT, "parent_plan_id": OTHER}, "a root plan"),
        ({"plan_id": OTHER}, "a sub-plan names"),
        ({"plan_id": OTHER, "parent_plan_id": ROOT}, "a sub-plan names"),
        (
            {
                "plan_id": OTHER,
                "parent_plan_id": ROOT,
                "tool_call_id": ROOT,
                "opened_by_step_id": ROOT,
            },
            "a sub-plan names",
        ),
        ({"plan_id": OTHER, "parent_plan_id": OTHER, "tool_call_id": ROOT}, "not its own parent"),
    ],
)
def test_a_plan_without_its_place_is_refused(fields: dict[str, UUID], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        PlanStarted.model_validate({"at": START, "root_plan_id": ROOT, **fields})


@pytest.mark.parametrize(
    "at",
    [
        "2026-01-01T00:00:00",
        "0001-01-01T00:00:00+14:00",
        "9999-12-31T23:59:59-14:00",
        "yesterday",
        "0.5",
        1767225600,
        None,
        float("nan"),
    ],
)
def test_a_time_without_zone_or_outside_the_calendar_is_refused(at: object) -> None:
    with pytest.raises(ValidationError):
        ToolCallStarted.model_validate({**CALL, "at": at, "name": "measure"})


def test_times_are_kept_in_utc() -> None:
    event = ToolCallStarted.model_validate(
        {**CALL, "at": "2026-01-01T08:00:00.123456+08:00", "name": "measure"}
    )

    assert event.at == datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
    assert event.at.utcoffset() == timedelta(0)


@pytest.mark.parametrize("messages", ["{}", "[", "", "null", {"role": "user"}, 7])
def test_messages_that_are_no_array_are_refused(messages: object) -> None:
    with pytest.raises(ValidationError):
        ThoughtStarted.model_validate(
            {**_thought(), "position": 0, "messages": messages},
        )


def test_messages_may_come_as_an_array_or_as_its_text() -> None:
    array = [{"role": "user", "content": "wie geht's? \0 \ud800"}]

    event = ThoughtStarted.model_validate({**_thought(), "position": 0, "messages": array})

    assert event.messages == r"""[{"role":"user","content":"wie geht's? \u0000 \ud800"}]"""
    again = ThoughtStarted.model_validate(
        {**_thought(), "position": 0, "messages": '[{"role":"user"}]'}
    )
    assert again.messages == '[{"role":"user"}]'


@pytest.mark.parametrize("cost", ["-1", "NaN", "Infinity", "1e9", "0.0000000000001"])
def test_a_cost_that_is_none_is_refused(cost: str) -> None:
    with pytest.raises(ValidationError):
        ThoughtRecorded.model_validate({**_thought(), "status": "succeeded", "cost_usd": cost})


@pytest.mark.parametrize("tokens", [-1, 2**40, 2**53, "many"])
def test_a_number_of_tokens_that_is_none_is_refused(tokens: object) -> None:
    with pytest.raises(ValidationError):
        ThoughtRecorded.model_validate(
            {**_thought(), "status": "succeeded", "input_tokens": tokens}
        )


@pytest.mark.parametrize(
    ("given_", "kept"), [("0.10", "0.1"), ("0", "0"), ("0.0", "0"), ("120", "120"), ("1e2", "100")]
)
def test_equal_costs_have_one_spelling(given_: str, kept: str) -> None:
    event = ThoughtRecorded.model_validate(
        {**_thought(), "status": "succeeded", "cost_usd": given_}
    )

    assert str(event.cost_usd) == kept


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "running"},
        {"status": "abandoned"},
        {"status": "failed", "reason": "Not a Reason"},
        {"status": "failed", "attempt": 0},
        {"status": "failed", "attempt": 2**31},
        {"status": "failed", "surprise": 1},
        {"status": "failed", "parent_tool_call_id": CALL["tool_call_id"]},
        {"status": "failed", "step_id": "call_0"},
    ],
)
def test_an_ending_that_makes_no_sense_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ToolCallFinished.model_validate({**CALL, **fields})


def test_what_is_not_still_running_has_one_spelling() -> None:
    said = [{"stillRunning": fact} for fact in (True, False, None)] + [{}]
    wire = {"type": "tool_call_finished", "status": "failed", **CALL}
    facts = [EVENT.validate_python(wire | each) for each in said]

    assert [getattr(event, "still_running", ...) for event in facts] == [True, None, None, None]


@pytest.mark.parametrize("changes", ["{}", "", {"op": "set"}, 7])
def test_state_changes_that_are_no_array_are_refused(changes: object) -> None:
    with pytest.raises(ValidationError, match="state_changes"):
        ToolCallFinished.model_validate({**CALL, "status": "failed", "state_changes": changes})


def test_a_late_end_keeps_how_it_ended() -> None:
    event = LateEndNoted(**CALL, status=Status.SUCCEEDED, result="at last")

    assert EVENT.validate_json(event_json(event)) == event


def test_sequential_ids_sort_in_the_order_of_minting() -> None:
    mint = sequential_ids()
    ids = [mint() for _ in range(300)]

    assert ids == sorted(ids)
    assert {i.version for i in ids} == {7}


def _thought() -> dict[str, Any]:
    return {
        "at": START,
        "root_plan_id": ROOT,
        "plan_id": ROOT,
        "step_id": OTHER,
        "think_act_id": OTHER,
    }
