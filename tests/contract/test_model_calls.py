"""The parameters of a model request, as every store returns them."""

from __future__ import annotations

from datetime import timedelta

from tests.contract.moments import START, Moments
from tests.contract.stores import Store
from tracer.records import Status, new_id
from tracer.records.events import ThoughtRecorded

TOOLS = [{"name": "weather", "description": None, "parameters": {"type": "object"}}]
TOOLS_TEXT = '[{"name":"weather","description":null,"parameters":{"type":"object"}}]'


async def test_round_stores_provider_parameters_and_offered_tools(store: Store) -> None:
    run = Moments()
    await store.record(
        run.plan_started(run_metadata={"tenant": "north"}),
        run.thought_started(
            provider="openai", parameters={"temperature": 0.2}, offered_tools=TOOLS, node="agent"
        ),
        ThoughtRecorded(
            at=START + timedelta(seconds=5),
            root_plan_id=run.root,
            plan_id=run.root,
            step_id=run.step,
            think_act_id=run.think_act,
            status=Status.SUCCEEDED,
            input_tokens=100,
            output_tokens=50,
            finish_reasons=("stop", "length", "stop"),
            cache_read_tokens=10,
            cache_written_tokens=20,
            reasoning_tokens=30,
            first_token_at=START + timedelta(seconds=3),
        ),
    )
    found = await store.reader.read_think_act(run.think_act)

    assert (found.provider, found.parameters, found.node) == (
        *("openai", '{"temperature":0.2}', "agent"),
    )
    assert (found.offered_tools, found.offered_tools_from) == (TOOLS_TEXT, None)
    assert found.finish_reasons == ["length", "stop"]
    assert (found.cache_read_tokens, found.cache_written_tokens) == (10, 20)
    assert found.reasoning_tokens == 30
    assert found.first_token_at == START + timedelta(seconds=3)
    assert (await store.reader.read_run(run.root)).run_metadata == '{"tenant":"north"}'


async def test_round_returns_the_offered_tools_of_the_round_it_refers_to(store: Store) -> None:
    run, later, unknown = Moments(), new_id(), new_id()
    await store.record(
        run.thought_started(think_act_id=later, offered_tools_from=run.think_act),
        run.thought_started(think_act_id=unknown, offered_tools_from=new_id()),
    )
    assert (await store.reader.read_think_act(later)).offered_tools is None

    await store.record(run.thought_started(offered_tools=TOOLS))
    assert (await store.reader.read_think_act(later)).offered_tools == TOOLS_TEXT
    assert (await store.reader.read_think_act(unknown)).offered_tools is None
