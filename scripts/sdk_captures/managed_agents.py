"""Run smolagents with managed agents, and store its exports and the truth of the run.

A managed agent is called like a tool, but has no span of a tool call: the call exists only in the
model's answer. Run with the Python of an environment that has the packages in `PACKAGES`:

    python scripts/sdk_captures/managed_agents.py nested tests/otel/captures/smolagents-nested
"""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from export import global_provider
from openinference.instrumentation.smolagents import SmolagentsInstrumentor
from scenarios import Call, Scenario, Turn, result_of
from scripted_model import MODEL, serve_model, serve_receiver
from smolagents import LogLevel, OpenAIServerModel, ToolCallingAgent, tool

PACKAGES = (
    *("smolagents", "openinference-instrumentation-smolagents", "openai"),
    "opentelemetry-sdk",
)
PARAMETERS = {
    **{"weather": "city", "search": "query", "final_answer": "answer"},
    **{"researcher": "task", "reader": "task"},
}


@dataclass(frozen=True)
class _Call(Call):
    @property
    def arguments(self) -> dict[str, str]:
        return {PARAMETERS[self.tool]: self.value}


def _turn(tokens: int, *calls: tuple[str, str]) -> Turn:
    """Return a turn whose calls are numbered from `call_0`, as local models number them."""
    numbered = (_Call(f"call_{at}", *call) for at, call in enumerate(calls))
    return Turn(tokens, 0, tokens // 10, calls=tuple(numbered))


def _answer(tokens: int, answer: str) -> Turn:
    return _turn(tokens, ("final_answer", answer))


SCENARIOS = {
    "nested": Scenario(
        "Plan a day at the harbour.",
        {
            "Plan a day at the harbour.": [
                _turn(110, ("weather", "Brest"), ("researcher", "When is the harbour open?")),
                _turn(220, ("researcher", "When is the tide lowest?")),
                _answer(330, "Go on Monday at noon."),
            ],
            "When is the harbour open?": [
                _turn(40, ("search", "harbour"), ("reader", "Read the notice of the harbour.")),
                _answer(50, "It is open on Monday."),
            ],
            "When is the tide lowest?": [
                _turn(60, ("search", "tide tables")),
                _answer(70, "The tide is lowest at noon."),
            ],
            "Read the notice of the harbour.": [_answer(80, "Open on Monday.")],
        },
    ),
    "parallel": Scenario(
        "Plan two trips.",
        {
            "Plan two trips.": [
                _turn(
                    *(120, ("researcher", "Which trip is short?")),
                    *(("weather", "Crozon"), ("reader", "Which trip is cheap?")),
                ),
                _answer(240, "Take the first trip."),
            ],
            "Which trip is short?": [
                _turn(41, ("search", "short trips")),
                _answer(51, "The first."),
            ],
            "Which trip is cheap?": [
                _turn(61, ("search", "cheap trips")),
                _answer(71, "The first one."),
            ],
        },
    ),
}


@tool
def weather(city: str) -> str:
    """Return the weather.

    Args:
        city: The city.
    """
    return result_of("weather", city)


@tool
def search(query: str) -> str:
    """Search.

    Args:
        query: The query.
    """
    return result_of("search", query)


def _agents(model: str) -> ToolCallingAgent:
    def agent(name: str, tools: list[Any], managed: list[ToolCallingAgent]) -> ToolCallingAgent:
        client = OpenAIServerModel(MODEL, api_base=model, api_key="none")
        return ToolCallingAgent(
            *(tools, client),
            name=name,
            description=f"The {name}.",
            managed_agents=managed,
            verbosity_level=LogLevel.OFF,
        )

    researcher = agent("researcher", [search], [agent("reader", [search], [])])
    return agent("planner", [weather], [researcher, agent("reader", [search], [])])


def _truth(scenario: Scenario) -> dict[str, Any]:
    calls: list[dict[str, Any]] = []
    sub_agents: list[dict[str, Any]] = []

    def follow(agent: str, request: str, opener: dict[str, Any] | None) -> None:
        turns = scenario.turns[request]
        if opener is not None:
            tokens = {
                "input_tokens": sum(turn.input for turn in turns),
                "output_tokens": sum(turn.output for turn in turns),
            }
            sub_agents.append({"agent": agent, "opened_by": opener, **tokens})
        for call in (call for turn in turns for call in turn.calls):
            named = {"name": call.tool, "arguments": call.arguments}
            calls.append(
                {
                    **named,
                    "status": "succeeded",
                    "agent": agent,
                    "parent_tool_call": opener,
                    "provider_call_id": call.call_id,
                }
            )
            if PARAMETERS[call.tool] == "task":
                follow(call.tool, call.value, named)

    follow("planner", scenario.prompt, None)
    all_turns = [turn for turns in scenario.turns.values() for turn in turns]
    return {
        "framework": "smolagents",
        "versions": {package: version(package) for package in PACKAGES},
        "runs": [
            {
                "input_tokens": sum(turn.input for turn in all_turns),
                "output_tokens": sum(turn.output for turn in all_turns),
                "tool_calls": calls,
                "sub_agents": sub_agents,
            }
        ],
    }


def main(name: str, folder: Path) -> None:
    """Run the scenario, and write the folder of the capture."""
    for stored in folder.glob("*"):
        stored.unlink()
    scenario = SCENARIOS[name]
    model, _ = serve_model(scenario)
    receiver, _ = serve_receiver(folder)
    provider = global_provider(receiver)
    SmolagentsInstrumentor().instrument(tracer_provider=provider)
    answer = _agents(model).run(scenario.prompt)
    provider.force_flush()
    assert answer == scenario.turns[scenario.prompt][-1].calls[0].value, answer
    for packed in folder.glob("*.gz"):
        packed.with_suffix("").write_bytes(gzip.decompress(packed.read_bytes()))
        packed.unlink()
    (folder / "expected.json").write_text(json.dumps(_truth(scenario), indent=1) + "\n")
    print(folder.name, len([*folder.glob("*.bin")]), "requests")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
