"""Read runs from Python, as objects: `tracer.read`.

    with tracer.read() as server:
        for item in server.runs(status="failed"):
            run = server.run(item.id)
            print(run.agent, run.error, [call.name for call in run.calls()])

`tracer.testing` returns the same objects for the runs of a test.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, Self
from uuid import UUID

import httpx2
import msgspec

from tracer import questions
from tracer.errors import (
    FAILED,
    NOTHING_FOUND,
    USAGE,
    BadRequest,
    StoreUnavailable,
    TooLarge,
)
from tracer.lineage import Row
from tracer.lineage.tree import Node, PlanNode, StepNode, ThinkActNode, ToolCallNode
from tracer.settings import LOCAL_SERVER, read_settings
from tracer.text import unescape

# --- A run as objects.


def _text(text: str | None) -> str | None:
    return None if text is None else unescape(text)


def _error(row: Row) -> str | None:
    return None if row.error is None else _text(row.error["message"] or row.error["type"] or "")


def _value(text: str | None) -> Any:
    """Return the value of JSON text; text that is no JSON is returned unchanged."""
    if text is None:
        return None
    try:
        return json.loads(unescape(text))
    except ValueError:
        return unescape(text)


@dataclass(frozen=True, eq=False)
class Call:
    """A tool call."""

    node: ToolCallNode
    """The record with all its fields, as in the tree of the API."""
    opens: list[Plan]
    """The sub-plans that the call opened."""

    @property
    def id(self) -> str:
        """The tool-call id."""
        return self.node.tool_call_id

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.node.name or ""

    @property
    def status(self) -> str:
        """The status, such as `succeeded` or `failed`."""
        return self.node.status

    @cached_property
    def arguments(self) -> Any:
        """The arguments, parsed if they are JSON."""
        return _value(self.node.arguments)

    @cached_property
    def result(self) -> Any:
        """The result, parsed if it is JSON; None if there is none."""
        return _value(self.node.result)

    @property
    def error(self) -> str | None:
        """The message of the error; None if there is none."""
        return _error(self.node)

    def __repr__(self) -> str:
        return f"{self.name}({self.node.arguments or ''})"


class Calls(list[Call]):
    """Tool calls in the order in which they were chosen."""

    def single(self) -> Call:
        """Return the only call.

        Raises:
            LookupError: There is none, or more than one.
        """
        if len(self) != 1:
            found = ", ".join(map(repr, self)) or "none"
            raise LookupError(f"Expected one call, and found {len(self)}: {found}.")
        return self[0]


@dataclass(frozen=True, eq=False)
class Round:
    """One model call and the tool calls that it chose.

    A call or a sub-plan that no model call chose is a round of its own, without a model.
    """

    node: ThinkActNode | None
    """The model call with all its fields."""
    calls: Calls
    """The calls. A call that the tool of another call made follows that call."""
    opens: list[Plan] = field(default_factory=list)
    """The sub-plans that the agent opened without a tool call."""

    @property
    def model(self) -> str | None:
        """The name of the model."""
        return None if self.node is None else self.node.model or self.node.requested_model

    @property
    def thought(self) -> str | None:
        """The text of the model's answer."""
        return None if self.node is None else _text(self.node.thought)


@dataclass(frozen=True, eq=False)
class Plan:
    """An agent's task and everything below it."""

    node: PlanNode
    """The record with all its fields and totals, as in the tree of the API."""
    rounds: list[Round]

    @classmethod
    def of(cls, node: PlanNode) -> Self:
        """Return a plan of a tree."""
        unplaced = node.unplaced if isinstance(node.unplaced, list) else []
        return cls(node, list(_rounds([*node.agent_executions, *unplaced])))

    @property
    def id(self) -> str:
        """The plan's id. That of a root plan is the run's id."""
        return self.node.plan_id

    @property
    def agent(self) -> str | None:
        """The name of the agent."""
        return self.node.agent_name or next(
            (step.agent_name for step in self.node.agent_executions), None
        )

    @property
    def status(self) -> str:
        """The status, such as `succeeded` or `failed`."""
        return self.node.status

    @property
    def error(self) -> str | None:
        """The message of the error; None if there is none."""
        return _error(self.node)

    @property
    def request(self) -> str | None:
        """The request, word for word."""
        return _text(self.node.user_request)

    @property
    def answer(self) -> str | None:
        """The outcome."""
        return _text(self.node.summary)

    @property
    def seconds(self) -> float | None:
        """The duration; None while it is open."""
        return None if self.node.duration_ms is None else self.node.duration_ms / 1000

    @property
    def tokens(self) -> int:
        """The input and output tokens, including sub-plans."""
        return self.node.cumulative.input_tokens + self.node.cumulative.output_tokens

    @property
    def cost(self) -> float | None:
        """The known cost in US dollars, including sub-plans; None if it is unknown."""
        return self.node.cumulative.cost_usd

    def plans(self) -> Iterator[Plan]:
        """Yield the plan and all plans below it, parents before children."""
        yield self
        for round in self.rounds:
            for below in (*(each for call in round.calls for each in call.opens), *round.opens):
                yield from below.plans()

    def calls(self, name: str | None = None) -> Calls:
        """Return the calls of the plan and of all plans below it.

        Args:
            name: The name of the tool; None: the calls of all tools.
        """
        every = (call for plan in self.plans() for each in plan.rounds for call in each.calls)
        return Calls(call for call in every if name is None or call.name == name)

    def text(self, budget: int = 2000) -> str:
        """Return the outline of the plan, within a budget of tokens."""
        return questions.outline(self.node, budget).text()


class Run(Plan):
    """A root plan and everything below it."""


def _rounds(nodes: Iterable[Node]) -> Iterator[Round]:
    for node in nodes:
        if isinstance(node, StepNode):
            below: list[Node] = [*node.think_acts, *node.tool_calls, *node.sub_plans]
            if node.tool_calls or node.sub_plans:  # rounds alone are in order
                below.sort(key=lambda each: (each.started_at is None, each.started_at))
            yield from _rounds(below)
        elif isinstance(node, ThinkActNode):
            yield Round(node, Calls(each for call in node.tool_calls for each in _calls(call)))
        elif isinstance(node, ToolCallNode):
            yield Round(None, Calls(_calls(node)))
        else:
            yield Round(None, Calls(), [Plan.of(node)])


def _calls(node: ToolCallNode) -> Iterator[Call]:
    yield Call(node, [Plan.of(each) for each in node.sub_plans])
    for inner in node.tool_calls:
        yield from _calls(inner)


# --- Runs of a server.


class Refused(BadRequest):
    """A server rejected a request."""

    def __init__(self, status: int, reason: str, code: str = "") -> None:
        super().__init__(f"The server answered {status}: {reason}")
        self.status = status
        """The status code of HTTP."""
        is_usage = status in (400, 422) or code == "ambiguous_reference"
        self.exit_code = NOTHING_FOUND if status == 404 else USAGE if is_usage else FAILED


def unreachable(url: str, error: httpx2.HTTPError) -> StoreUnavailable:
    """Return the error for a request that got no response."""
    advice = "Check that it runs and that TRACER_URL is its address."
    return StoreUnavailable(
        f"The server at {url} does not answer ({type(error).__name__}). {advice}"
    )


def refusal(status: int, content: bytes) -> Refused:
    """Return the error for a response, with the server's reason."""
    code = ""
    try:
        problem = json.loads(content)
        reason = problem.get("detail") or problem["message"]
        code = problem.get("code") or ""
    except (ValueError, AttributeError, KeyError):
        reason = "the response is not from a Tracer server, or the request was too large."
    return Refused(status, reason, code)


class RunSummary(msgspec.Struct, rename="camel", frozen=True):
    """A run in a list, with its totals."""

    root_plan_id: str
    status: str
    title: str | None = None
    agent_name: str | None = None
    session_id: str | None = None
    subject: str | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    request: str | None = None
    answer: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float | None = None
    tool_calls: int = 0
    failures: int = 0

    @property
    def id(self) -> str:
        """The id of the run."""
        return self.root_plan_id


PAGE_SIZE = "100"
Parameters = dict[str, str | float | None]


class _Page(msgspec.Struct, rename="camel"):
    items: list[RunSummary]
    next_cursor: str | None = None


class ServerReader:
    """Reads the runs of a project from a server. Close it, or use it in a `with` statement."""

    def __init__(self, url: str, key: str | None) -> None:
        """See `read`."""
        headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._url = url
        self._client = httpx2.Client(base_url=url, headers=headers, timeout=60, trust_env=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the server."""
        self._client.close()

    def run(self, run_id: str) -> Run:
        """Return a run with everything below it, with complete arguments and results.

        Waits until accepted spans are projected, for as long as the server allows.

        Args:
            run_id: The id of the run, or a handle of the run or of one of its records.

        Raises:
            Refused: The server has no such run, or the key may not read it.
            TooLarge: Agents nest hundreds of levels deep.
            StoreUnavailable: The server does not answer.
        """
        try:
            plan_id = str(UUID(str(run_id)))
        except ValueError:  # a handle
            shown = self._get("/api/questions/show", {"run": str(run_id), "budget": "300"})
            plan_id = json.loads(shown)["rootPlanId"]
        content = self._get(f"/api/plans/{plan_id}/tree", {"payloads": "full", "fresh": "true"})
        try:
            return Run.of(msgspec.json.decode(content, type=PlanNode))
        except RecursionError:
            raise TooLarge(f"The run {plan_id} nests too deeply to be read as objects.") from None

    def runs(
        self,
        *,
        status: str | None = None,
        agent: str | None = None,
        tool: str | None = None,
        session: str | None = None,
        user: str | None = None,
        tag: str | None = None,
        min_cost: float | None = None,
        q: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        sort: str = "-start",
    ) -> Iterator[RunSummary]:
        """Yield runs, the latest first. Pages are read when they are needed.

        Args:
            status: The status, such as `failed`.
            agent: The name of an agent of the run.
            tool: The name of a called tool.
            session: The session id.
            user: For whom the run was made.
            tag: One of the run's tags.
            min_cost: The least known cost in US dollars.
            q: Words within the run.
            since: The run started at this time or later.
            until: The run started before this time.
            sort: The order, as in `GET /api/runs`.

        Raises:
            Refused: The server rejects the request.
            StoreUnavailable: The server does not answer.
        """
        wanted: Parameters = {"status": status, "agent": agent, "tool": tool, "session": session}
        wanted |= {"subject": user, "tag": tag, "minCost": min_cost, "q": q, "sort": sort}
        for name, at in (("from", since), ("to", until)):
            wanted[name] = None if at is None else at.isoformat()
        cursor: str | None = None
        while True:
            content = self._get("/api/runs", wanted | {"limit": PAGE_SIZE, "cursor": cursor})
            page = msgspec.json.decode(content, type=_Page)
            yield from page.items
            cursor = page.next_cursor
            if cursor is None:
                return

    def _get(self, path: str, parameters: Parameters) -> bytes:
        wanted = {name: value for name, value in parameters.items() if value is not None}
        try:
            answer = self._client.get(path, params=wanted)
        except httpx2.HTTPError as error:
            raise unreachable(self._url, error) from error
        if not answer.is_success:
            raise refusal(answer.status_code, answer.content)
        return answer.content


def read(url: str | None = None, api_key: str | None = None) -> ServerReader:
    """Return a reader of a server's runs.

    Args:
        url: The address of the server. The default is `TRACER_URL`, else the server on this
            machine.
        api_key: A key with the scope `read`. The default is `TRACER_API_KEY`.

    Raises:
        ConfigurationError: An environment variable is invalid.
    """
    settings = read_settings()
    key = api_key or (settings.api_key and settings.api_key.get_secret_value())
    return ServerReader(url or settings.url or LOCAL_SERVER, key or None)
