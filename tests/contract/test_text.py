"""Strings are stored exactly, whatever characters they contain."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contract.moments import Moments
from tests.contract.stores import NewStore, Store
from tests.profiles import scaled
from tracer.records import Status
from tracer.records.events import EVENT, ErrorInfo, ThoughtRecorded, event_json
from tracer.records.sessions import StateChange, changes_json
from tracer.text import unescape


@settings(max_examples=scaled(50))
@given(text=st.text(st.characters(), max_size=30))
async def test_any_text_is_read_back_unchanged(new_store: NewStore, text: str) -> None:
    run, store = Moments(), new_store()
    event = run.call_finished(
        result=text,
        error=ErrorInfo(type=text, message=text, stack=text),
        forged_arguments=(text,),
        short_circuited_by=text,
        state_changes=changes_json([StateChange("set", (text,), text)]),
    )
    started = run.call_started(
        name=text, arguments=text, effective_arguments=text, provider_call_id=text
    )
    await store.record(started, event)
    call = (await store.reader.read_tool_call(run.call)).call
    changes = json.loads(unescape(call.state_changes or ""))
    assert changes == [{"op": "set", "path": [text], "value": text}]
    for kept in (
        *(call.name, call.arguments, call.effective_arguments, call.provider_call_id, call.result),
        *(*call.forged_arguments, call.short_circuited_by),
        *(call.error_type, call.error_message, call.error_stack),
    ):
        assert kept is not None
        assert unescape(kept) == text


HOSTILE_TEXTS = [
    "\0" * 3,
    "\ud800\udfff",
    "␛0000",
    '{"a": NaN}',
    '{"a": 1e999999999}',
    '{"a": "\\u0000"}',
    '{"a": "\\ud800"}',
    '{"a": 1, "a": 2}',
    "[" * 500,
    '{"deep": ' * 500 + "1" + "}" * 500,
    "not json",
    "",
    " ",
    "'; DROP TABLE run; --",
    "%(name)s {} %s",
]


async def test_hostile_arguments_and_results_are_read_back_unchanged(store: Store) -> None:
    failures = []
    for text in HOSTILE_TEXTS:
        run = Moments()
        await store.record(run.call_started(arguments=text), run.call_finished(result=text))
        call = (await store.reader.read_tool_call(run.call)).call
        for field, stored in (("arguments", call.arguments), ("result", call.result)):
            if stored is None or unescape(stored) != text:
                failures.append(f"{field} {text[:20]!r}: read back as {(stored or '')[:40]!r}")
    assert failures == []


@pytest.mark.parametrize("megabytes", [1, pytest.param(5, marks=pytest.mark.thorough)])
async def test_strings_of_megabytes_are_read_back_unchanged(store: Store, megabytes: int) -> None:
    run = Moments()
    text = "血压🧪\0x" * (megabytes * 100_000)
    await store.record(run.call_finished(result=text), run.plan_started(title=text))
    call = (await store.reader.read_tool_call(run.call)).call
    # Compared first: a failing comparison of the strings would print megabytes.
    is_unchanged = unescape(call.result or "") == text
    assert is_unchanged
    await store.record(run.call_finished(result=text))


async def test_event_decoded_from_json_stores_the_same_text(store: Store) -> None:
    run = Moments()
    event = run.call_finished(result="\0␛0000\ud800")
    await store.record(EVENT.validate_json(event_json(event)))
    call = (await store.reader.read_tool_call(run.call)).call
    assert unescape(call.result or "") == "\0␛0000\ud800"


async def test_numbers_and_times_are_stored_exactly(store: Store) -> None:
    run = Moments()
    at = run.plan_started().at.replace(microsecond=123_457)
    await store.record(
        ThoughtRecorded(
            root_plan_id=run.root,
            plan_id=run.root,
            step_id=run.step,
            at=at,
            think_act_id=run.think_act,
            status=Status.SUCCEEDED,
            input_tokens=2**40 - 1,
            output_tokens=0,
            cost_usd=Decimal("999999999.123456789012"),
        ),
    )
    think_act = await store.reader.read_think_act(run.think_act)
    assert think_act.finished_at == at
    assert (think_act.input_tokens, think_act.output_tokens) == (2**40 - 1, 0)
    assert think_act.cost_usd == Decimal("999999999.123456789012")
    assert (await store.reader.read_run(run.root)).cost_usd == think_act.cost_usd
