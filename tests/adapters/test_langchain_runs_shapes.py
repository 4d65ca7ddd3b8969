"""LangChain graphs, chains, custom loops and nested blocks, recorded by the adapter."""

from __future__ import annotations

import asyncio
import operator
from pathlib import Path
from typing import Annotated, Any, TypedDict, cast
from uuid import UUID

import pytest
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnableParallel
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import Command, Send

from tests.adapters.langchain_agents import (
    VERSIONS,
    ask,
    chooses,
    echo,
    in_order,
    new_agent,
    recorded,
    scenario_agent,
)
from tests.adapters.outline import calls_of
from tests.adapters.recording import recording, tree_of, trees_of
from tests.adapters.scenario import assert_scenario, scenario
from tests.recordings import run_of
from tests.trees import Node
from tracer.adapters.langchain import RecordingHandler
from tracer.adapters.langchain import runs as langchain_runs
from tracer.client import Tracing


def shape(plan: Node) -> Any:
    """Return a plan's name, how often its models were asked, its calls, and its sub-plans."""
    [step] = plan["agentExecutions"]
    calls = [
        (call["name"], call["result"], [shape(each) for each in call["subPlans"]])
        for call in calls_of(plan)
    ]
    return (
        plan["agentName"],
        len(step["thinkActs"]),
        calls,
        [shape(each) for each in step["subPlans"]],
    )


def react_graph(*answers: AIMessage | str) -> Any:
    """Return a graph by hand: a model, and the tools that it chooses."""
    model = in_order(*answers)

    async def think(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph: Any = StateGraph(MessagesState)
    graph.add_node("think", think).add_node("tools", ToolNode([echo]))
    graph.add_edge(START, "think").add_conditional_edges("think", tools_condition)
    graph.add_edge("tools", "think")
    return graph.compile()


async def test_hand_built_graph_is_recorded_as_a_plan(tmp_path: Path) -> None:
    graph = react_graph(
        chooses(("echo", {"text": "a"}, "call_0"), ("echo", {"text": "b"}, "call_0")), "done"
    )
    with recorded(tmp_path) as store:
        await graph.ainvoke(ask("go"))

        assert shape(await tree_of(store)) == (
            "LangGraph",
            2,
            [("echo", "said a", []), ("echo", "said b", [])],
            [],
        )


async def test_graph_run_by_a_tool_is_a_sub_plan_and_a_graph_node_is_not(
    tmp_path: Path,
) -> None:
    inner = react_graph(chooses(("echo", {"text": "a"}, "call_0")), "done")

    @tool
    async def delegate(text: str) -> str:
        """Delegates."""
        return str((await inner.ainvoke(ask(text)))["messages"][-1].text)

    outer: Any = StateGraph(MessagesState)
    outer.add_node("part", react_graph(chooses(("echo", {"text": "b"}, "call_0")), "done"))
    outer.add_node(
        "agent",
        new_agent(
            in_order("no", chooses(("delegate", {"text": "c"}, "call_0")), "done"),
            [delegate],
            name="delegator",
        ),
    )
    outer.add_edge(START, "part").add_edge("part", "agent").add_edge("agent", END)
    with recorded(tmp_path) as store:
        await outer.compile().ainvoke(ask("go"))
        tree = await tree_of(store)

    assert (tree["agentName"], [call["result"] for call in calls_of(tree)]) == (
        "LangGraph",
        ["said b"],
    )
    [agent] = tree["agentExecutions"][0]["subPlans"]
    assert agent["agentName"] == "delegator"


async def test_agents_of_a_hand_off_are_sub_plans_of_their_graph(tmp_path: Path) -> None:
    @tool
    def give() -> Command[Any]:
        """Hands over."""
        update = {"messages": [HumanMessage("It is yours.")]}
        return Command(goto="bob", graph=Command.PARENT, update=update)

    graph: Any = StateGraph(MessagesState)
    alice = new_agent(in_order(chooses(("give", {}, "call_0"))), [give], name="alice")
    graph.add_node("alice", alice, destinations=("bob",))
    graph.add_node("bob", new_agent(in_order("done"), [echo], name="bob"))
    graph.add_edge(START, "alice").add_edge("bob", END)
    with recorded(tmp_path) as store:
        await graph.compile().ainvoke(ask("go"))
        tree = await tree_of(store)

    [step] = tree["agentExecutions"]
    handed = [(each["agentName"], each["status"]) for each in step["subPlans"]]
    assert handed == [("alice", "succeeded"), ("bob", "succeeded")]
    [call] = calls_of(step["subPlans"][0])
    assert (call["name"], call["status"]) == ("give", "succeeded")


class _Cities(TypedDict):
    cities: list[str]
    said: Annotated[list[str], operator.add]


async def test_parallel_branches_keep_their_calls_if_provider_ids_collide(
    tmp_path: Path,
) -> None:
    all_there = asyncio.Barrier(3)
    cities = ["Brest", "Oban", "Porto"]

    async def branch(city: str) -> dict[str, Any]:
        model = in_order(chooses(("echo", {"text": "the weather"}, "call_0")))
        answer = await model.ainvoke([HumanMessage(city)])
        await all_there.wait()
        done = await echo.ainvoke(answer.tool_calls[0])
        return {"said": [str(done.text)]}

    graph: Any = StateGraph(_Cities)
    graph.add_node("branch", branch)
    graph.add_conditional_edges(
        START, lambda state: [Send("branch", city) for city in state["cities"]]
    )
    with recorded(tmp_path) as store:
        await graph.compile().ainvoke({"cities": cities, "said": []})
        [step] = (await tree_of(store))["agentExecutions"]

    assert [
        [(call["result"], call["attempt"]) for call in think_act["toolCalls"]]
        for think_act in step["thinkActs"]
    ] == [[("said the weather", 1)]] * 3
    assert step["toolCalls"] == []


async def test_chain_is_recorded_as_a_plan_only_if_it_calls_a_model(tmp_path: Path) -> None:
    prompt = ChatPromptTemplate.from_messages([("user", "Say {word}.")])
    chain = prompt | RunnableParallel(one=in_order("yes"), other=in_order("no"))
    with recorded(tmp_path) as store:
        await prompt.ainvoke({"word": "nothing"})
        await RunnableLambda(lambda text: text).ainvoke("nothing")
        await chain.ainvoke({"word": "it"})
        tree = await tree_of(store)

    assert (tree["userRequest"], shape(tree)[1:]) == ('{"word":"it"}', (2, [], []))
    assert tree["status"] == "succeeded"


async def test_agents_in_a_chain_are_sub_plans_of_the_chain(tmp_path: Path) -> None:
    one = new_agent(in_order("yes"), [], name="one")
    chain = RunnableParallel(one=one, other=react_graph("no"))
    with recorded(tmp_path) as store:
        await chain.ainvoke(ask("go"))
        tree = await tree_of(store)

    assert sorted(each["agentName"] for each in tree["agentExecutions"][0]["subPlans"]) == [
        "LangGraph",
        "one",
    ]


async def test_model_and_tool_calls_of_a_custom_loop_belong_to_the_open_plan(
    tmp_path: Path,
) -> None:
    model = in_order(
        chooses(("echo", {"text": "a"}, "call_0")), chooses(("echo", {"text": "a"}, "call_0")), "ok"
    )
    with recorded(tmp_path) as store:
        async with store.tracing.plan("By a loop", agent="looper") as plan:
            messages: list[Any] = [HumanMessage("go")]
            while (answer := await model.ainvoke(messages)).tool_calls:
                results = [await echo.ainvoke(call) for call in answer.tool_calls]
                messages += [answer, *results]
            plan.finish(answer.text)
        tree = await tree_of(store)

    assert shape(tree) == ("looper", 3, [("echo", "said a", [])] * 2, [])


async def test_agent_run_inside_a_recorded_call_is_its_sub_plan(tmp_path: Path) -> None:
    wanted = scenario()
    agent = scenario_agent([wanted])
    with recorded(tmp_path) as store:
        async with (
            store.tracing.plan("Around") as plan,
            store.tracing.tool_call("plan_a_day") as call,
        ):
            await agent.ainvoke(ask(wanted.prompt))
            call.finish("planned")
            plan.finish()
        tree = await tree_of(store)

    [outer] = calls_of(tree)
    [sub_plan] = outer["subPlans"]
    assert (sub_plan["agentName"], sub_plan["status"]) == ("planner", "succeeded")
    assert len(calls_of(sub_plan)) == 4


async def test_work_recorded_inside_a_tool_is_below_the_tool_call(
    tmp_path: Path,
) -> None:
    inner = new_agent(in_order("done"), [], name="inner")
    with recorded(tmp_path) as store:

        @tool
        async def measure(text: str) -> str:
            """Measures."""
            async with store.tracing.tool_call("by_hand", {"text": text}) as call:
                await inner.ainvoke(ask(text))
                call.finish("measured")
            return await asyncio.to_thread(in_a_thread, text)

        def in_a_thread(text: str) -> str:
            with store.tracing.tool_call("in_a_thread", {"text": text}) as call:
                call.finish(text)
            return "done"

        await new_agent(
            in_order(chooses(("measure", {"text": "a"}, "call_0")), "done"), [measure]
        ).ainvoke(ask("go"))
        tree = await tree_of(store)

    [call] = calls_of(tree)
    assert call["subPlans"] == []
    assert [(each["name"], each["result"]) for each in call["toolCalls"]] == [
        ("by_hand", "measured"),
        ("in_a_thread", "a"),
    ]
    assert [each["agentName"] for each in call["toolCalls"][0]["subPlans"]] == ["inner"]


class _Library(BaseRetriever):
    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return [Document(f"about {query}")]


async def test_retriever_run_is_a_tool_call_of_type_retriever(tmp_path: Path) -> None:
    with recorded(tmp_path) as store:
        await _Library().ainvoke("tides")
        [call] = calls_of(await tree_of(store))

    assert (call["toolType"], call["arguments"], call["status"]) == (
        "RETRIEVER",
        "tides",
        "succeeded",
    )
    assert '"page_content":"about tides"' in call["result"]


async def test_run_records_its_session_id_user_and_tags(tmp_path: Path) -> None:
    config: Any = {
        "configurable": {"thread_id": "t"},
        "metadata": {"user_id": "u"},
        "tags": ["night"],
    }
    with recorded(tmp_path) as store:
        await new_agent(in_order("done"), []).ainvoke(ask("go"), config)
        run = run_of(store, UUID((await tree_of(store))["planId"]))

    assert (run.session_id, run.subject, run.tags) == ("t", "u", ["night"])


async def test_handler_records_only_runs_that_have_it_in_their_callbacks(tmp_path: Path) -> None:
    wanted = scenario()
    agent = scenario_agent([wanted])
    with recording(tmp_path) as (tracing, store):
        await agent.ainvoke(ask(wanted.prompt), {"callbacks": [RecordingHandler(tracing)]})
        await agent.ainvoke(ask(wanted.prompt))

        assert_scenario(await tree_of(store), wanted, VERSIONS)


async def test_second_install_records_each_run_once(tmp_path: Path) -> None:
    wanted = scenario()
    with recording(tmp_path) as (tracing, store):
        uninstall = [langchain_runs.install(tracing) for _ in range(2)]
        await scenario_agent([wanted]).ainvoke(ask(wanted.prompt))
        for each in uninstall:
            each()
        await scenario_agent([wanted]).ainvoke(ask(wanted.prompt))

        assert_scenario(await tree_of(store), wanted, VERSIONS)


@pytest.mark.parametrize("is_async", [True, False])
async def test_agent_result_is_unchanged_if_nothing_can_be_recorded(
    is_async: bool, tmp_path: Path
) -> None:
    wanted = scenario()
    agent = scenario_agent([wanted], is_async=is_async)
    with recorded(tmp_path) as store:
        store.tracing.close()
        answer = (
            await agent.ainvoke(ask(wanted.prompt))
            if is_async
            else await asyncio.to_thread(agent.invoke, ask(wanted.prompt))
        )

    assert answer["messages"][-1].text == wanted.final_answer


@pytest.mark.parametrize("is_async", [True, False])
async def test_agent_result_is_unchanged_if_recording_fails(
    is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    wanted = scenario()
    agent = scenario_agent([wanted], is_async=is_async)
    recorder = RecordingHandler(cast("Tracing", None))
    config = {"callbacks": [recorder]}
    if is_async:
        answer = await agent.ainvoke(ask(wanted.prompt), config)
    else:
        answer = await asyncio.to_thread(agent.invoke, ask(wanted.prompt), config)

    assert answer["messages"][-1].text == wanted.final_answer
    assert {each.getMessage().split()[0] for each in caplog.records} == {"adapter_failed"}
    assert recorder.under_way == 0


async def test_runs_in_several_event_loops_keep_their_parents(tmp_path: Path) -> None:
    wanted = [scenario(run) for run in range(3)]
    agent = scenario_agent(wanted)
    with recorded(tmp_path) as store:
        await asyncio.gather(
            *(asyncio.to_thread(asyncio.run, agent.ainvoke(ask(each.prompt))) for each in wanted)
        )
        trees = {tree["userRequest"]: tree for tree in await trees_of(store)}

    for each in wanted:
        assert_scenario(trees[each.prompt], each, VERSIONS)
