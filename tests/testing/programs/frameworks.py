"""One agent in each framework, as tests of a project. `test_frameworks.py` runs them with pytest.

All connect when this module is imported, and all are compared with one trajectory file.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

import agents
import anyio
from agents.testing import ScriptedModel, assistant_message, function_call
from agno.agent import Agent as AgnoAgent
from agno.models.message import Message
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings

import tracer
from tests.adapters.agno_models import Answer, AnsweringModel
from tracer.adapters import agno, langchain, openai_agents, pydantic_ai
from tracer.adapters.opentelemetry import TracerSpanProcessor
from tracer.runtime.scripted_model import Script, Turn, call
from tracer.runtime.scripted_model import ScriptedModel as RuntimeModel
from tracer.testing import Recorded

tracing = tracer.connect("http://127.0.0.1:1")  # no server: it records in memory
agents.set_trace_processors([])
langchain.install(tracing)
openai_agents.install(tracing)
agno.install(tracing)

QUESTION = "How is the weather in Oban?"
ANSWER = "It rains."


def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"17 degrees in {city}"


def check(recorded: Recorded) -> None:
    run = recorded.run()
    assert run.calls("weather").single().arguments == {"city": "Oban"}
    assert run.calls("weather").single().result == "17 degrees in Oban"
    run.assert_matches("weather.yaml")
    assert not os.path.exists(os.environ["TRACER_HOME"])  # no spool


def test_agno(recorded: Recorded) -> None:
    def answer(messages: list[Message]) -> Answer:
        if any(each.role == "tool" for each in messages):
            return Answer(ANSWER)
        return Answer(None, [("weather", {"city": "Oban"}, "call_0")])

    AgnoAgent(name="agno", model=AnsweringModel(answer=answer), tools=[weather]).run(QUESTION)

    check(recorded)


class LangChainModel(BaseChatModel):
    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, *args: Any, **kwargs: Any) -> LangChainModel:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        chosen = [{"name": "weather", "args": {"city": "Oban"}, "id": "call_0"}]
        is_asked = all(each.type != "tool" for each in messages)
        message = AIMessage("", tool_calls=chosen) if is_asked else AIMessage(ANSWER)
        return ChatResult(generations=[ChatGeneration(message=message)])


def test_langchain(recorded: Recorded) -> None:
    agent: Any = create_agent(LangChainModel(), [weather], name="langchain")
    agent.invoke({"messages": [("user", QUESTION)]})

    check(recorded)


def test_openai_agents(recorded: Recorded) -> None:
    model = ScriptedModel(
        [
            [function_call("weather", '{"city": "Oban"}', call_id="call_0")],
            [assistant_message(ANSWER)],
        ]
    )
    tool = agents.function_tool(weather)
    agents.Runner.run_sync(agents.Agent(name="sdk", model=model, tools=[tool]), QUESTION)

    check(recorded)


def _pydantic_answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    if len(messages) > 1:
        return ModelResponse([TextPart(ANSWER)])
    return ModelResponse([ToolCallPart("weather", {"city": "Oban"})])


def _pydantic_agent(provider: TracerProvider | None = None) -> PydanticAgent:
    agent = PydanticAgent(FunctionModel(_pydantic_answer), tools=[weather], name="pydantic")
    if provider is not None:
        agent.instrument = InstrumentationSettings(tracer_provider=provider)
    return agent


def test_pydantic_ai(recorded: Recorded) -> None:
    with ExitStack() as stack:
        stack.callback(pydantic_ai.install(tracing))
        _pydantic_agent().run_sync(QUESTION)

    check(recorded)


def test_spans_of_an_exporter(recorded: Recorded) -> None:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(recorded.otel_exporter()))
    _pydantic_agent(provider).run_sync(QUESTION)
    provider.force_flush()

    check(recorded)


def test_spans_of_the_processor(recorded: Recorded) -> None:
    provider = TracerProvider()
    provider.add_span_processor(TracerSpanProcessor(tracing))
    _pydantic_agent(provider).run_sync(QUESTION)

    check(recorded)


def test_recorded_by_hand(recorded: Recorded) -> None:
    with tracing.plan(QUESTION, agent="hand") as plan:
        with tracing.think_act([{"role": "user", "content": QUESTION}]) as thought:
            calls = thought.finish(tool_calls=[tracer.Chosen("weather", '{"city": "Oban"}')])
        for each in calls:
            with each:
                each.finish(weather("Oban"))
        with tracing.think_act([{"role": "user", "content": QUESTION}]) as thought:
            thought.finish(ANSWER)
        plan.finish(ANSWER)

    check(recorded)


def test_runtime(recorded: Recorded) -> None:
    model = RuntimeModel([Script([Turn(calls=[call("weather", {"city": "Oban"})]), Turn(ANSWER)])])
    agent = tracer.Agent("runtime", "Answer.", tools=(tracer.tool(weather),))
    application = tracer.Application(name="tests", agents=(agent,), model=model)

    async def ask() -> None:
        async with recorded.launcher(application) as launcher:
            await launcher.run(QUESTION, agent="runtime")

    anyio.run(ask)

    check(recorded)
