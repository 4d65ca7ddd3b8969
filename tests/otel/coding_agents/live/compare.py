"""Compare what Tracer shows with what the scripted model knows."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.otel.coding_agents.live.models import Answer, MadeCall, ScriptedModel
from tests.otel.coding_agents.live.scenarios import Delegate, Shell

Tokens = tuple[int, int]
"""The input and output tokens of a model call. In a scenario, they name one call."""


@dataclass
class ShownPlan:
    """A plan: its run's root, or a sub-agent."""

    plan_id: str
    opener: str | None
    """The provider's id of the call that opened it; None for a root, or if it is unknown."""
    is_root: bool
    is_inferred: bool
    status: str
    tags: set[str] = field(default_factory=set[str])
    """The conversations of its rounds."""


class ShownCall(NamedTuple):
    """A tool call, with its plan and the tokens of its round."""

    node: dict[str, Any]
    plan: ShownPlan
    round: Tokens | None


@dataclass
class Shown:
    """What Tracer shows of a scenario."""

    runs: list[dict[str, Any]]
    """Previews of the runs, by their start."""
    plans: list[ShownPlan] = field(default_factory=list[ShownPlan])
    rounds: dict[Tokens, list[ShownPlan]] = field(default_factory=lambda: defaultdict(list))
    calls: dict[str, list[ShownCall]] = field(default_factory=lambda: defaultdict(list))
    inferred: int = 0
    """The number of inferred links."""

    def add(self, tree: Mapping[str, Any]) -> None:
        """Add the tree of a run."""
        self._add_plan(tree, None, is_root=True)
        for plan in tree.get("unplaced", ()):
            self._add_plan(plan, None, is_root=False)

    def _add_plan(self, node: Mapping[str, Any], opener: str | None, *, is_root: bool) -> None:
        plan = ShownPlan(
            node["planId"], opener, is_root, bool(node.get("inferred")), node["status"]
        )
        self.plans.append(plan)
        self.inferred += plan.is_inferred
        for step in node.get("agentExecutions", ()):
            for round_node in step["thinkActs"]:
                tokens = (round_node["inputTokens"] or 0, round_node["outputTokens"] or 0)
                self.rounds[tokens].append(plan)
                self._add_calls(round_node["toolCalls"], plan, tokens)
            self._add_calls(step["toolCalls"], plan, None)
            for below in step["subPlans"]:
                self._add_plan(below, None, is_root=False)

    def _add_calls(self, nodes: list[Any], plan: ShownPlan, tokens: Tokens | None) -> None:
        for node in nodes:
            call_id = node["providerCallId"] or ""
            self.inferred += bool(node.get("inferred"))
            self.calls[call_id].append(ShownCall(node, plan, tokens))
            for below in node["subPlans"]:
                self._add_plan(below, call_id or None, is_root=False)
            self._add_calls(node["toolCalls"], plan, None)


def differences(
    model: ScriptedModel, shown: Shown, cost: float | None, apart: Collection[str] = ()
) -> list[str]:
    """Return what Tracer shows differently after the end of a scenario; empty: it is exact.

    Args:
        model: The model, with its record.
        shown: What Tracer shows.
        cost: The cost that the program printed; None if it printed none.
        apart: The ids of the calls that no id links to a model call (`calls_apart`).
    """
    found = list(false_links(model, shown))
    openers = _openers(model)
    answers = [answer for answer in model.answers if answer.tag is not None]
    for answer in answers:
        plans = shown.rounds.get(answer.usage[::2], [])
        if len(plans) != 1:
            found.append(f"the round {answer.turn} of {answer.tag} is shown {len(plans)} times")
    for tag in openers:
        for plan in shown.plans:
            if tag in plan.tags and plan.opener is None:
                found.append(f"the call that opened {tag} is unknown")
            is_lost = model.scenario.killed_in is not None and plan.status == "abandoned"
            if tag in plan.tags and plan.status != "succeeded" and not is_lost:
                found.append(f"the sub-agent {tag} is {plan.status}")
    for answer, call in _calls(model):
        found += _differences_of_call(model, shown, answer, call, call.call_id in apart)
    for name, expected in (
        ("input", sum(each.usage.input for each in model.answers)),
        ("output", sum(each.usage.output for each in model.answers)),
    ):
        total = sum(run[f"{name}Tokens"] for run in shown.runs)
        if total != expected:
            found.append(f"{total} {name} tokens instead of {expected}")
    if cost is not None and abs(sum(run["costUsd"] or 0 for run in shown.runs) - cost) > 1e-6:
        found.append(f"the cost is not the {cost} that the program printed")
    titles = [run["title"] or "" for run in shown.runs]
    found += [
        f"no run has the title {each!r}" for each in model.scenario.prompts if each not in titles
    ]
    found += [f"the title {each[:40]!r}" for each in titles if each.startswith("<")]
    found += _wrong_ends(model, shown)
    if shown.inferred:
        found.append(f"{shown.inferred} links are inferred")
    return found


def _wrong_ends(model: ScriptedModel, shown: Shown) -> Iterator[str]:
    is_killed = model.scenario.killed_in is not None
    for run in shown.runs:
        if run["status"] != "succeeded" and not (is_killed and run["status"] == "abandoned"):
            yield f"a run is {run['status']}"
    if is_killed and all(run["status"] != "abandoned" for run in shown.runs):
        yield "no run is abandoned"


def false_links(model: ScriptedModel, shown: Shown) -> Iterator[str]:
    """Yield links that are wrong. While the program runs, records may lack a link."""
    tags = {answer.usage[::2]: answer.tag for answer in list(model.answers)}
    openers = {tag: call.call_id for tag, call in _openers(model).items()}
    for tokens, plans in shown.rounds.items():
        for plan in plans:
            if tag := tags.get(tokens):
                plan.tags.add(tag)
    for plan in shown.plans:
        if len(plan.tags) > 1:
            yield f"a plan has rounds of {' and '.join(sorted(plan.tags))}"
        for tag in plan.tags:
            expected = openers.get(tag)
            if plan.opener is not None and not _is_call(plan.opener, expected):
                yield f"another call opened {tag}"
            if expected is not None and plan.is_root:
                yield f"the sub-agent {tag} is a root"
    for answer, call in _calls(model):
        for _, plan, round_tokens in _shown(shown, call):
            if plan.tags and answer.tag not in plan.tags:
                yield f"a call of {answer.tag} is a call of {' and '.join(sorted(plan.tags))}"
            # A round without tokens has not ended, so nothing says which one it is.
            if round_tokens not in (None, (0, 0), answer.usage[::2]):
                yield f"a call of {answer.tag} is in another round"


def open_calls(model: ScriptedModel, shown: Shown) -> tuple[set[str], set[str]]:
    """Return the ids of calls that run: those below their agent, and the others.

    `false_links` must have been called before.
    """
    openers = {tag: call.call_id for tag, call in _openers(model).items()}
    placed, unplaced = set[str](), set[str]()
    for answer, call in _calls(model):
        for node, plan, _ in _shown(shown, call):
            if node["status"] != "running":
                continue
            opener = openers.get(answer.tag or "")
            # The agent has no rounds yet if the log record of the call precedes that of its round.
            is_opened = plan.is_root if opener is None else _is_call(plan.opener or "", opener)
            is_placed = answer.tag in plan.tags or (is_opened and not plan.tags)
            (placed if is_placed else unplaced).add(call.call_id)
    return placed, unplaced


def _differences_of_call(
    model: ScriptedModel, shown: Shown, answer: Answer, call: MadeCall, is_apart: bool
) -> Iterator[str]:
    name = f"the call {call.name} of {answer.tag}"
    found = _shown(shown, call)
    if len(found) != 1:
        yield f"{name} is shown {len(found)} times"
        return
    [(node, plan, round_tokens)] = found
    if is_apart and (round_tokens or plan.tags or not plan.is_root):
        yield f"{name} is in a round or an agent that no id names"
    if not is_apart and round_tokens is None:
        yield f"{name} has no round"
    if not is_apart and not plan.tags:
        yield f"{name} has no agent"
    if node["name"] != call.name.rpartition(".")[2]:  # without the namespace
        yield f"{name} is called {node['name']}"
    if not node["argumentsTruncated"] and not _holds(node["arguments"], call.arguments):
        yield f"{name} has other arguments"
    is_lost = model.scenario.killed_in is not None and call.call_id not in model.results
    fails = isinstance(call.step, Shell) and call.step.fails
    status = "abandoned" if is_lost else "failed" if fails else "succeeded"
    if node["status"] != status:
        yield f"{name} is {node['status']}, not {status}"


def calls_apart(model: ScriptedModel) -> set[str]:
    """Return the ids of the main agent's calls.

    A program that sends each of its model calls and each batch of its calls as a trace names no
    model call in a batch. Nothing but the order of time says which one chose a call. Such a call is
    expected in a run of its own, below the row of its prompt.
    """
    return {call.call_id for answer, call in _calls(model) if "/" not in (answer.tag or "/")}


def _holds(shown: str | None, arguments: dict[str, Any]) -> bool:
    """Return whether the shown arguments have those of the model; programs add defaults."""
    try:
        read = json.loads(shown or "null")
    except ValueError:
        return False
    return isinstance(read, dict) and arguments.items() <= read.items()


def _calls(model: ScriptedModel) -> Iterator[tuple[Answer, MadeCall]]:
    for answer in list(model.answers):
        for call in answer.calls:
            yield answer, call


def _openers(model: ScriptedModel) -> dict[str, MadeCall]:
    """Return the call that opened each sub-agent, by its tag."""
    return {call.step.to: call for _, call in _calls(model) if isinstance(call.step, Delegate)}


def _shown(shown: Shown, call: MadeCall) -> list[ShownCall]:
    return [
        each
        for call_id, calls in shown.calls.items()
        if _is_call(call_id, call.call_id)
        for each in calls
    ]


def _is_call(shown: str, call_id: str | None) -> bool:
    """Return whether an id is that of a call. Some programs put the tool's name before it."""
    return call_id is not None and (shown == call_id or shown.endswith(f"__{call_id}"))
