"""LangChain's tool calls, recorded by the adapter: their identity, attempts, results and ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from langchain.agents.middleware import ToolRetryMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import Generation, LLMResult
from langchain_core.tools import ToolException, tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import RetryPolicy
from pydantic import BaseModel

from tests.adapters.langchain_agents import (
    ErrorsAreAnswers,
    Says,
    Streams,
    ask,
    chooses,
    echo,
    in_order,
    new_agent,
    recorded,
)
from tests.adapters.outline import calls_of
from tests.adapters.recording import tree_of, trees_of
from tests.profiles import scaled
from tests.recordings import messages_of, round_of, run_of
from tracer.adapters.langchain.tree import answer_of


@tool
async def other(text: str) -> str:
    """Says something else."""
    return f"other than {text}"


@tool
async def fail(text: str) -> str:
    """Fails."""
    raise ConnectionError(f"no line for {text}")


def fields(call: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(call[name] for name in names)


@pytest.mark.parametrize("call_id", ["call_0", "", None])
async def test_calls_with_the_same_provider_id_are_matched_by_arguments(
    call_id: str | None, tmp_path: Path
) -> None:
    # Answers without an id are no messages of a graph: here, a loop runs the tools.
    texts = ["a", "b", "a", "c"]
    answer = chooses(*(("echo", {"text": text}, call_id) for text in texts))
    with recorded(tmp_path) as store:
        async with store.tracing.plan("By a loop") as plan:
            said = await in_order(answer).ainvoke("go")
            done = await asyncio.gather(*(echo.ainvoke(each) for each in reversed(said.tool_calls)))
            plan.finish(str(len(done)))
        tree = await tree_of(store)

    assert [fields(call, "arguments", "result", "providerCallId") for call in calls_of(tree)] == [
        (f'{{"text":"{text}"}}', f"said {text}", call_id or None) for text in texts
    ]


async def test_same_provider_id_in_another_round_or_tool_is_another_call(
    tmp_path: Path,
) -> None:
    agent = new_agent(
        in_order(
            chooses(("echo", {"text": "1"}, "call_0"), ("other", {"text": "1"}, "call_0")),
            chooses(("other", {"text": "2"}, "call_0"), ("echo", {"text": "1"}, "call_0")),
            "done",
        ),
        [echo, other],
    )
    with recorded(tmp_path) as store:
        await agent.ainvoke(ask("go"))
        [step] = (await tree_of(store))["agentExecutions"]

    assert [
        [fields(call, "name", "result") for call in think_act["toolCalls"]]
        for think_act in step["thinkActs"]
    ] == [
        [("echo", "said 1"), ("other", "other than 1")],
        [("other", "other than 2"), ("echo", "said 1")],
        [],
    ]


_CHOICES = st.lists(
    st.tuples(
        st.sampled_from(["echo", "other"]),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["call_0", "call_1"]),
    ),
    max_size=4,
)


@settings(max_examples=scaled(25))
@given(rounds=st.lists(_CHOICES.filter(bool), min_size=1, max_size=3), stream=st.booleans())
async def test_calls_have_their_own_results_if_provider_ids_collide(
    rounds: list[list[tuple[str, str, str]]], stream: bool, tmp_path: Path
) -> None:
    answers = [
        chooses(*((name, {"text": text}, call_id) for name, text, call_id in chosen))
        for chosen in rounds
    ]
    model = in_order(*answers, "done", **({"model": Streams} if stream else {}))
    with recorded(tmp_path) as store:
        await new_agent(model, [echo, other]).ainvoke(ask("go"))
        tree = await tree_of(store)

    said = {"echo": "said", "other": "other than"}
    assert [
        [
            fields(call, "name", "providerCallId", "result", "status", "attempt")
            for call in think_act["toolCalls"]
        ]
        for think_act in tree["agentExecutions"][0]["thinkActs"]
    ] == [
        *(
            [
                (name, call_id, f"{said[name]} {text}", "succeeded", 1)
                for name, text, call_id in chosen
            ]
            for chosen in rounds
        ),
        [],
    ]


async def test_calls_that_cannot_run_record_their_errors(tmp_path: Path) -> None:
    @tool
    async def refuse(text: str) -> str:
        """Refuses."""
        raise ToolException("not today")

    refuse.handle_tool_error = True
    misformed = chooses(("fail", {"text": "x"}, "call_0"), ("nothing_such", {}, "call_1"))
    misformed.tool_calls += chooses(
        ("echo", {"words": 1}, "call_2"), ("refuse", {"text": "x"}, "call_3")
    ).tool_calls
    misformed.invalid_tool_calls = [
        {
            "type": "invalid_tool_call",
            "name": "echo",
            "args": '{"text": ',
            "id": "call_4",
            "error": "It ends too early.",
        }
    ]
    agent = new_agent(
        in_order(misformed, "done"), [fail, echo, refuse], middleware=[ErrorsAreAnswers()]
    )
    with recorded(tmp_path) as store:
        await agent.ainvoke(ask("go"))
        calls = calls_of(await tree_of(store))

    assert [fields(call, "providerCallId", "status", "reason") for call in calls] == [
        ("call_0", "failed", "tool_error"),
        ("call_1", "failed", "unknown_tool"),
        ("call_2", "failed", "invalid_arguments"),
        ("call_3", "failed", "tool_error"),
        ("call_4", "failed", "invalid_arguments"),
    ]
    errors = [call["error"] for call in calls]
    assert (errors[0]["type"], errors[0]["message"]) == ("ConnectionError", "no line for x")
    assert "nothing_such is not a valid tool" in errors[1]["message"]
    assert errors[3]["message"] == "not today"
    assert (calls[4]["arguments"], errors[4]["message"]) == ('{"text": ', "It ends too early.")


@pytest.mark.parametrize("max_concurrency", [None, 1])
async def test_retry_by_middleware_is_another_attempt_of_the_same_call(
    max_concurrency: int | None, tmp_path: Path
) -> None:
    """With `max_concurrency=1`, the first call is retried before the second one starts."""
    tries: list[str] = []

    @tool
    async def flaky(text: str) -> str:
        """Works the second time."""
        tries.append(text)
        if tries.count(text) < 2:
            raise ConnectionError("not yet")
        return f"said {text}"

    agent = new_agent(
        in_order(
            chooses(("flaky", {"text": "a"}, "call_0"), ("flaky", {"text": "b"}, "call_0")),
            chooses(("fail", {"text": "c"}, "call_0")),
            "done",
        ),
        [flaky, fail],
        middleware=[ToolRetryMiddleware(max_retries=1, initial_delay=0, jitter=False)],
    )
    with recorded(tmp_path) as store:
        await agent.ainvoke(ask("go"), {"max_concurrency": max_concurrency})
        calls = calls_of(await tree_of(store))

    assert [fields(call, "arguments", "status", "attempt", "result") for call in calls] == [
        ('{"text":"a"}', "succeeded", 2, "said a"),
        ('{"text":"b"}', "succeeded", 2, "said b"),
        ('{"text":"c"}', "failed", 2, None),
    ]


async def test_retry_of_a_graph_node_is_another_attempt_of_the_same_call(tmp_path: Path) -> None:
    tries: list[str] = []

    @tool
    def flaky(text: str) -> str:
        """Works the second time."""
        tries.append(text)
        if len(tries) < 2:
            raise ConnectionError("not yet")
        return f"said {text}"

    graph: Any = StateGraph(MessagesState)
    model = in_order(chooses(("flaky", {"text": "a"}, "call_0")))
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node(
        "tools",
        ToolNode([flaky], handle_tool_errors=False),
        retry_policy=RetryPolicy(initial_interval=0.001, jitter=False),
    )
    graph.add_edge(START, "model").add_edge("model", "tools").add_edge("tools", END)
    with recorded(tmp_path) as store:
        await graph.compile().ainvoke(ask("go"))
        await flaky.with_retry().ainvoke({"text": "b"})
        tries.clear()
        await asyncio.to_thread(flaky.with_retry(wait_exponential_jitter=False).invoke, "c")
        trees = await trees_of(store)

    assert [
        [fields(call, "status", "attempt", "result") for call in calls_of(tree)] for tree in trees
    ] == [
        [("succeeded", 2, "said a")],
        [("succeeded", 1, "said b")],
        [("succeeded", 2, "said c")],
    ]


async def test_arguments_are_recorded_exactly_as_the_model_wrote_them(tmp_path: Path) -> None:
    written = '{ "text" :  "\\u00e9" }'
    answer = chooses(("echo", {"text": "é"}, "call_0"))
    answer.additional_kwargs["tool_calls"] = [
        {"id": "call_0", "type": "function", "function": {"name": "echo", "arguments": written}}
    ]
    with recorded(tmp_path) as store:
        await new_agent(in_order(answer, "done"), [echo]).ainvoke(ask("go"))
        tree = await tree_of(store)

    [call] = calls_of(tree)
    assert fields(call, "arguments", "result") == (written, "said é")
    second = tree["agentExecutions"][0]["thinkActs"][1]["thinkActId"]
    messages = messages_of(store, UUID(tree["planId"]))
    assert json.loads(messages[UUID(second)]) == [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "call_0", "name": "echo", "arguments": written}],
        },
        {"role": "tool", "content": "said é", "name": "echo", "tool_call_id": "call_0"},
    ]


async def test_structured_answer_by_tool_strategy_is_recorded_as_a_succeeded_call(
    tmp_path: Path,
) -> None:
    class Reading(BaseModel):
        systolic: int

    chosen = chooses(("Reading", {"systolic": 121}, "call_0"))
    with recorded(tmp_path) as store:
        agent = new_agent(in_order(chosen), [], response_format=ToolStrategy(Reading))
        await agent.ainvoke(ask("go"))
        tree = await tree_of(store)

    [call] = calls_of(tree)
    assert fields(call, "name", "status") == ("Reading", "succeeded")
    assert tree["summary"] == '{"systolic":121}'


async def test_answer_of_with_structured_output_is_not_recorded_as_a_tool_call(
    tmp_path: Path,
) -> None:
    class Reading(BaseModel):
        systolic: int

    chosen = chooses(("Reading", {"systolic": 121}, "call_0"))
    with recorded(tmp_path) as store:
        said = await in_order(chosen).with_structured_output(Reading).ainvoke("go")
        tree = await tree_of(store)

    assert said == Reading(systolic=121)
    assert calls_of(tree) == []
    [think_act] = tree["agentExecutions"][0]["thinkActs"]
    assert think_act["thought"] == '{"systolic":121}'


async def test_tool_message_of_a_custom_loop_is_recorded_as_the_result(tmp_path: Path) -> None:
    model = in_order(
        chooses(("plus", {"a": 1}, "call_0"), ("plus", {"a": 2}, "call_0")),
        chooses(("plus", {"a": 3}, "call_0")),
        "done",
    )
    graph: Any = StateGraph(MessagesState)

    def loop(state: MessagesState) -> dict[str, Any]:
        messages = [*state["messages"]]
        while (answer := model.invoke(messages)).tool_calls:
            messages += [
                answer,
                *(
                    ToolMessage(str(call["args"]["a"] + 1), tool_call_id=call["id"])
                    for call in answer.tool_calls
                ),
            ]
        return {"messages": [answer]}

    graph.add_node("loop", loop).add_edge(START, "loop").add_edge("loop", END)
    with recorded(tmp_path) as store:
        await asyncio.to_thread(graph.compile().invoke, ask("go"))
        calls = calls_of(await tree_of(store))

    assert [fields(call, "arguments", "result", "status") for call in calls] == [
        ('{"a":1}', "2", "succeeded"),
        ('{"a":2}', "3", "succeeded"),
        ('{"a":3}', "4", "succeeded"),
    ]


async def test_requested_call_that_never_runs_is_cancelled_as_not_reached(tmp_path: Path) -> None:
    with recorded(tmp_path) as store:
        await in_order(chooses(("echo", {"text": "a"}, "call_0"))).ainvoke("go")
        [call] = calls_of(await tree_of(store))

    assert fields(call, "status", "reason") == ("cancelled", "not_reached")


def test_llm_result_without_generations_has_no_text() -> None:
    assert answer_of(LLMResult(generations=[[]])).text is None
    usage = {"token_usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    plain = LLMResult(generations=[[Generation(text="yes")]], llm_output=usage)
    assert (answer_of(plain).text, answer_of(plain).usage) == ("yes", (3, 4))


class Bound(Says):
    """A model whose requests have parameters and tools."""

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Any:
        return self.bind(tools=[convert_to_openai_tool(each) for each in tools], **options)

    def _get_invocation_params(self, stop: list[str] | None = None, **options: Any) -> Any:
        return {"temperature": 0.2, "api_key": "hidden", **options}


async def test_round_records_its_graph_node_parameters_tools_and_finish_reason(
    tmp_path: Path,
) -> None:
    answer = AIMessage("ok", response_metadata={"finish_reason": "stop"})
    model = in_order(chooses(("echo", {"text": "a"}, "call_0")), answer, model=Bound)
    with recorded(tmp_path) as store:
        agent = new_agent(model, [echo], name="speaker")
        config = {"metadata": {"tenant": "north", "thread_id": "t-1"}}
        await agent.ainvoke(ask("Say a"), config)
        tree = await tree_of(store)
        first, last = [
            round_of(store, UUID(each["thinkActId"]))
            for each in tree["agentExecutions"][0]["thinkActs"]
        ]
        run = run_of(store, UUID(tree["planId"]))

    assert (first.node, first.parameters) == ("model", '{"temperature":0.2}')
    assert [each["name"] for each in json.loads(first.offered_tools or "")] == ["echo"]
    assert (last.offered_tools_from, last.finish_reasons) == (first.think_act_id, ["stop"])
    assert (run.session_id, run.run_metadata) == ("t-1", '{"tenant":"north"}')
