"""The scenario of the captures as data: what the models answer, what the tools do, what is true.

A planner asks for the weather and, through a tool, a researcher, in parallel; twice. Both times the
researcher searches twice in parallel, and one search fails. So within one run `call_0` names three
calls, and `call_1` three, and their outcomes differ.

A framework's scripted model looks up its next answer by what the conversation began with and how
often it has answered there (`turn`); the tools answer by their argument (`weather`, `search`).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.trees import Node

PLANNER, RESEARCHER = "planner", "researcher"
MODEL = "gpt-5-mini"


class SearchFailed(Exception):
    """What the failing search raises."""


@dataclass(frozen=True)
class Choice:
    """A tool call that the model chooses."""

    name: str
    arguments: dict[str, str]
    provider_call_id: str
    fails: bool = False
    seconds: float = 0.0
    """How long its tool takes: those of one turn end in another order than they were chosen in."""

    @property
    def arguments_text(self) -> str:
        return json.dumps(self.arguments)


@dataclass(frozen=True)
class Turn:
    """One answer of a model: tool calls, or else the final text."""

    input_tokens: int
    cached_input_tokens: int
    output_tokens: int
    calls: tuple[Choice, ...] = ()
    text: str | None = None


@dataclass(frozen=True)
class Scenario:
    """One run; its texts are told apart from those of others by the run's number."""

    prompt: str
    turns: dict[str, tuple[Turn, ...]]
    """What the models answer, by the first message of the conversation."""
    openers: dict[str, Choice]
    """The calls that hand to the researcher, by what they ask it."""
    final_answer: str

    def turn(self, first_message: str, answered: int) -> Turn:
        """Return what the model answers that has answered so often."""
        return self.turns[first_message][answered]

    def weather(self, city: str) -> str:
        return f"17 degrees in {city}"

    def seconds(self, q: str) -> float:
        """Return how long a search takes."""
        return self._search(q).seconds

    def search(self, q: str) -> str:
        """Return what is found, or raise.

        Raises:
            SearchFailed: It is the one of the two that fails.
        """
        if self._search(q).fails:
            raise SearchFailed(f"no connection to the index for {q!r}")
        return f"3 hits for {q!r}"

    def _search(self, q: str) -> Choice:
        return next(
            call
            for turns in self.turns.values()
            for turn in turns
            for call in turn.calls
            if call.arguments.get("q") == q
        )


def scenario(
    run: int = 0, delegate: str = "ask_researcher", argument: str = "question"
) -> Scenario:
    """Return the scenario of one run.

    Args:
        run: The run's number.
        delegate: The name of the tool that hands to the researcher, which some frameworks fix.
        argument: The name of its argument, likewise.
    """
    mark = f"[run {run}]"
    start, other = CITIES[run]
    prompt = f"{mark} Plan a day at the tide pools, starting in {start}."
    question_1 = f"{mark} question 1: when is the tide lowest?"
    question_2 = f"{mark} question 2: which species can be seen?"
    final_answer = f"{mark} Plan: go to {start} at low tide, then {other}."
    ask_1 = Choice(delegate, {argument: question_1}, "call_1")
    ask_2 = Choice(delegate, {argument: question_2}, "call_2")
    turns = {
        prompt: (
            Turn(1101, 0, 61, (Choice("weather", {"city": start}, "call_0"), ask_1)),
            Turn(1302, 1024, 72, (ask_2, Choice("weather", {"city": other}, "call_3"))),
            Turn(1503, 1280, 83, text=final_answer),
        ),
        question_1: (
            Turn(
                401,
                0,
                31,
                (
                    Choice("search", {"q": f"{mark} q1 tide tables"}, "call_0", seconds=0.06),
                    Choice("search", {"q": f"{mark} q1 harbour notices"}, "call_1", True, 0.02),
                ),
            ),
            Turn(502, 256, 42, text=f"{mark} answer 1: low tide is 06:41."),
        ),
        question_2: (
            Turn(
                411,
                0,
                33,
                (
                    Choice("search", {"q": f"{mark} q2 closed reserve list"}, "call_0", True, 0.02),
                    Choice("search", {"q": f"{mark} q2 species guide"}, "call_1", seconds=0.06),
                ),
            ),
            Turn(522, 256, 44, text=f"{mark} answer 2: sea stars and blennies."),
        ),
    }
    return Scenario(prompt, turns, {question_1: ask_1, question_2: ask_2}, final_answer)


CITIES = (
    ("Brest", "Saint-Malo"),
    ("Lisbon", "Porto"),
    ("Oban", "Ullapool"),
    ("Halifax", "Digby"),
    ("Hobart", "Strahan"),
)
"""Where each run goes; they are different, so that arguments tell calls of all runs apart."""

Call = tuple[str, str]
"""A call's name, and its arguments as sorted JSON."""


@dataclass(frozen=True)
class Facts:
    """What is true of a run, whoever recorded it."""

    calls: Counter[tuple[Call, str, str | None, Call | None, str | None]]
    """Each call: itself, its status and agent, the call that opened its plan, its provider's id."""
    agents: Counter[tuple[str | None, Call | None, int, int]]
    """Each plan's agent, with the call that opened it, and its own input and output tokens."""
    tokens: tuple[int, int]
    """Input and output tokens of the run."""
    unplaced: int = 0


def expected_facts(wanted: Scenario) -> Facts:
    """Return the truth of a scenario."""
    calls: list[Any] = []
    agents: list[Any] = []
    for first_message, turns in wanted.turns.items():
        asked_by = wanted.openers.get(first_message)
        agent = RESEARCHER if asked_by else PLANNER
        opener = asked_by and _call(asked_by.name, asked_by.arguments_text)
        for choice in (choice for turn in turns for choice in turn.calls):
            call = _call(choice.name, choice.arguments_text)
            status = "failed" if choice.fails else "succeeded"
            calls.append((call, status, agent, opener, choice.provider_call_id))
        own = [(turn.input_tokens, turn.output_tokens) for turn in turns]
        agents.append((agent, opener, *map(sum, zip(*own, strict=True))))
    return Facts(
        Counter(calls),
        Counter(agents),
        (sum(each[2] for each in agents), sum(each[3] for each in agents)),
    )


def seen_facts(tree: Node) -> Facts:
    """Return what a run's tree says, in the same terms."""
    calls: list[Any] = []
    agents: list[Any] = []
    for plan, opener in _plans(tree, None):
        rounds = [each for step in plan["agentExecutions"] for each in step["thinkActs"]]
        agents.append(
            (
                plan["agentName"] or plan["agentExecutions"][0]["agentName"],
                opener and _call(opener["name"], opener["arguments"]),
                sum(each["inputTokens"] or 0 for each in rounds),
                sum(each["outputTokens"] or 0 for each in rounds),
            )
        )
        for step in plan["agentExecutions"]:
            calls += [
                (
                    _call(call["name"], call["arguments"]),
                    call["status"],
                    step["agentName"],
                    opener and _call(opener["name"], opener["arguments"]),
                    call["providerCallId"],
                )
                for call in _calls(step)
            ]
    totals = tree["cumulative"]
    return Facts(
        Counter(calls),
        Counter(agents),
        (totals["inputTokens"], totals["outputTokens"]),
        len(tree["unplaced"]),
    )


def assert_scenario(tree: Node, wanted: Scenario | None = None, note: str = "") -> None:
    """Hold a run's tree to a scenario: its calls, their status, agents and parents, and its tokens.

    Args:
        tree: The tree, with whole payloads.
        wanted: The scenario; unless given, that of run 0.
        note: What a failure says besides, such as the framework's version.
    """
    seen, expected = seen_facts(tree), expected_facts(wanted or scenario())
    assert seen == expected, note


def _plans(plan: Node, opener: Node | None) -> Iterator[tuple[Node, Node | None]]:
    """Give each plan with the call that opened it; None where a step handed over, or nobody."""
    yield plan, opener
    for step in plan["agentExecutions"]:
        for sub_plan in step["subPlans"]:
            yield from _plans(sub_plan, None)
        for call in _calls(step):
            for sub_plan in call["subPlans"]:
                yield from _plans(sub_plan, call)


def _calls(node: Node) -> Iterator[Node]:
    """Give the tool calls below a step, round or call, within the same plan."""
    for think_act in node.get("thinkActs", ()):
        yield from _calls(think_act)
    for call in node.get("toolCalls", ()):
        yield call
        yield from _calls(call)


def _call(name: str, arguments: str) -> Call:
    return name, json.dumps(json.loads(arguments), sort_keys=True)
