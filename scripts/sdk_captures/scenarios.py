"""The scenarios of the captures: the answers of a scripted model, and the facts of each run.

Drivers run in an environment of their own, so this file needs the standard library alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

DELEGATES = {"ask_researcher": "researcher", "ask_reader": "reader"}
"""The agent that each delegating tool runs. Its only argument is the agent's request."""

TOOLS = {
    "planner": ("weather", "search", "ask_researcher"),
    "researcher": ("search", "ask_reader"),
    "reader": ("fetch",),
}
"""The tools of each agent."""

PARAMETERS = {
    "weather": "city",
    "search": "query",
    "fetch": "page",
    "ask_researcher": "question",
    "ask_reader": "question",
}
"""The only parameter of each tool."""


@dataclass(frozen=True)
class Call:
    """A tool call that the model chooses."""

    call_id: str
    tool: str
    value: str

    @property
    def arguments(self) -> dict[str, str]:
        return {PARAMETERS[self.tool]: self.value}


@dataclass(frozen=True)
class Turn:
    """One answer of the model. Without text and calls, the provider refuses the request."""

    input: int = 0
    cached: int = 0
    output: int = 0
    text: str = ""
    calls: tuple[Call, ...] = ()

    @property
    def is_refused(self) -> bool:
        return not self.text and not self.calls


@dataclass(frozen=True)
class Scenario:
    """One run: its first request, and the model's turns by the request of each agent."""

    prompt: str
    turns: dict[str, list[Turn]] = field(default_factory=dict)


class ToolError(Exception):
    """The error of a failing tool."""


REFUSAL = "The scripted provider refuses this request."


def result_of(tool: str, value: str) -> str:
    """Return what a tool that delegates nothing answers.

    Raises:
        ToolError: The value asks for something that is closed.
    """
    if "closed" in value:
        raise ToolError(f"{value} is not open")
    return {
        "weather": f"{value}: 12 degrees",
        "search": f"3 hits for {value}",
        "fetch": f"the text of {value}",
    }[tool]


TIDES = "When is the tide lowest?"
SPECIES = "Which species can be seen?"

SCENARIOS = {
    "single": Scenario(
        "Plan a day in Brest.",
        {
            "Plan a day in Brest.": [
                Turn(
                    *(101, 0, 11),
                    calls=(Call("call_0", "weather", "Brest"), Call("call_1", "weather", "Crozon")),
                ),
                Turn(202, 100, 22, calls=(Call("call_2", "search", "tide tables"),)),
                Turn(303, 200, 33, "Go to Crozon at low tide."),
            ]
        },
    ),
    "parallel": Scenario(
        "Plan two trips.",
        {
            "Plan two trips.": [
                Turn(
                    *(104, 0, 14),
                    calls=(
                        Call("call_0", "ask_researcher", TIDES),
                        Call("call_1", "ask_researcher", SPECIES),
                        Call("call_2", "weather", "Brest"),
                    ),
                ),
                Turn(405, 100, 45, "Take the first trip at noon."),
            ],
            TIDES: [
                Turn(51, 0, 6, calls=(Call("call_0", "search", "tide calendar"),)),
                Turn(62, 50, 7, "The tide is lowest at noon."),
            ],
            SPECIES: [
                Turn(
                    *(53, 0, 8),
                    calls=(
                        Call("call_0", "search", "starfish"),
                        Call("call_1", "search", "anemones"),
                    ),
                ),
                Turn(74, 50, 9, "Starfish can be seen."),
            ],
        },
    ),
    "nested": Scenario(
        "Plan a visit of the harbour.",
        {
            "Plan a visit of the harbour.": [
                Turn(107, 0, 17, calls=(Call("call_0", "ask_researcher", "Is it open?"),)),
                Turn(208, 100, 28, "Visit the harbour on Monday."),
            ],
            "Is it open?": [
                Turn(59, 0, 9, calls=(Call("call_0", "ask_reader", "What does the notice say?"),)),
                Turn(71, 50, 10, "It is open on Monday."),
            ],
            "What does the notice say?": [
                Turn(32, 0, 3, calls=(Call("call_0", "fetch", "harbour notices"),)),
                Turn(43, 0, 4, "The notice says Monday."),
            ],
        },
    ),
    "failing": Scenario(
        "Plan an evening.",
        {
            "Plan an evening.": [
                Turn(
                    *(111, 0, 11),
                    calls=(
                        Call("call_0", "search", "closed archive"),
                        Call("call_1", "weather", "Roscoff"),
                    ),
                ),
                Turn(
                    112, 100, 12, calls=(Call("call_2", "ask_researcher", "Which bar is quiet?"),)
                ),
                Turn(
                    113, 100, 13, calls=(Call("call_3", "ask_researcher", "Which bar is cheap?"),)
                ),
                Turn(114, 100, 14, "Stay at home."),
            ],
            "Which bar is quiet?": [
                Turn(41, 0, 5, calls=(Call("call_0", "search", "closed bars"),)),
                Turn(42, 0, 6, "I found no quiet bar."),
            ],
            "Which bar is cheap?": [Turn()],
        },
    ),
}


def truth_of(scenario: Scenario) -> dict[str, Any]:
    """Return the facts of a run of the scenario, in the form of `expected.json`."""
    agents: list[dict[str, Any]] = []
    calls: list[dict[str, Any]] = []

    def follow(agent: str, request: str, opened_by: str | None) -> Turn:
        turns = scenario.turns[request]
        agents.append(
            {
                "agent": agent,
                "request": request,
                "opened_by": opened_by,
                "status": "failed" if turns[-1].is_refused else "succeeded",
                "answer": turns[-1].text or None,
                "rounds": [
                    {
                        "status": "failed" if turn.is_refused else "succeeded",
                        "input": turn.input,
                        "cached": turn.cached,
                        "output": turn.output,
                        "answer": turn.text or None,
                    }
                    for turn in turns
                ],
            }
        )
        for number, turn in enumerate(turns):
            for call in turn.calls:
                status, result, error = "succeeded", None, None
                if call.tool in DELEGATES:
                    end = follow(DELEGATES[call.tool], call.value, call.value)
                    if end.is_refused:
                        status, error = "failed", REFUSAL
                    else:
                        result = end.text
                else:
                    try:
                        result = result_of(call.tool, call.value)
                    except ToolError as raised:
                        status, error = "failed", str(raised)
                calls.append(
                    {
                        "agent": agent,
                        "request": request,
                        "round": number,
                        "name": call.tool,
                        "arguments": call.arguments,
                        "provider_call_id": call.call_id,
                        "status": status,
                        "result": result,
                        "error": error,
                    }
                )
        return turns[-1]

    follow("planner", scenario.prompt, None)
    rounds = [each for agent in agents for each in agent["rounds"]]
    return {
        "agents": agents,
        "calls": calls,
        "tokens": {
            kind: sum(each[kind] for each in rounds) for kind in ("input", "cached", "output")
        },
    }
