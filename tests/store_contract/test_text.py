"""Strings are kept exactly, whatever they hold."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store_contract.moments import Moments
from tests.store_contract.stores import NewStore, Store
from tests.store_contract.test_order import thorough
from tracer.events import EVENT, ErrorInfo, ThoughtRecorded, event_json
from tracer.sessions import Change, changes_json
from tracer.status import Status
from tracer.text import unescape


@settings(thorough, max_examples=50)
@given(text=st.text(st.characters(), max_size=30))
async def test_any_text_comes_back_as_it_was(new_store: NewStore, text: str) -> None:
    run, store = Moments(), new_store()
    event = run.call_finished(
        result=text,
        error=ErrorInfo(type=text, message=text, stack=text),
        forged_arguments=(text,),
        short_circuited_by=text,
        state_changes=changes_json([Change("set", (text,), text)]),
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


@pytest.mark.parametrize(
    "text",
    [
        "\0" * 3,
        "\ud800\udfff",
        "␛0000",
        '{"a": NaN}',
        '{"a": 1e999999999}',
        '{"a": "\\u0000"}',
        '{"a": "\\ud800"}',
        '{"a": 1, "a": 2}',
        "[" * 200_000,
        '{"deep": ' * 20_000 + "1" + "}" * 20_000,
        "not json",
        "",
        " ",
        "'; DROP TABLE run; --",
        "%(name)s {} %s",
    ],
    ids=lambda text: repr(text[:12]),
)
async def test_arguments_and_results_are_kept_as_the_text_that_they_were(
    store: Store, text: str
) -> None:
    run = Moments()
    await store.record(run.call_started(arguments=text), run.call_finished(result=text))
    call = (await store.reader.read_tool_call(run.call)).call
    assert call.arguments is not None
    assert call.result is not None
    assert unescape(call.arguments) == unescape(call.result) == text


async def test_five_megabytes_are_kept(store: Store) -> None:
    run = Moments()
    text = "血压🧪\0x" * 500_000
    await store.record(run.call_finished(result=text), run.plan_started(title=text))
    call = (await store.reader.read_tool_call(run.call)).call
    assert unescape(call.result or "") == text
    await store.record(run.call_finished(result=text))


async def test_what_came_over_the_wire_is_what_was_recorded(store: Store) -> None:
    run = Moments()
    event = run.call_finished(result="\0␛0000\ud800")
    await store.record(EVENT.validate_json(event_json(event)))
    call = (await store.reader.read_tool_call(run.call)).call
    assert unescape(call.result or "") == "\0␛0000\ud800"


async def test_numbers_and_times_are_kept_exactly(store: Store) -> None:
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
