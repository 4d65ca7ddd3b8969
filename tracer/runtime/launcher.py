"""The launcher: starts an application's runs, and cancels them when somebody wishes it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Protocol, Self, TypedDict, Unpack
from uuid import UUID

from tracer.context import Identity, current_identity, tool_context_bound
from tracer.errors import BadRequest, StoreUnavailable
from tracer.logs import get_logger
from tracer.recorder.recorder import Recorder
from tracer.records.events import ErrorInfo, Event, PlanStarted
from tracer.records.ids import IdSource, new_id
from tracer.records.record_classes import Run
from tracer.records.sessions import SessionStates
from tracer.records.status import Reason, Status
from tracer.runtime.application import AgentRun, Application
from tracer.runtime.chat_model import Message
from tracer.runtime.history import ExchangeReader, join_session
from tracer.runtime.plan import Plan, PlanStep
from tracer.runtime.plan_runner import PlanHead, PlanPlace, PlanRunner
from tracer.runtime.planner import PLANNER
from tracer.storage.memory.sessions import MemorySessions
from tracer.tasks import Waited, earlier, wait_for_end
from tracer.tools.call.active_run import ToolResources
from tracer.tools.definition.results import Ending
from tracer.tools.service import ToolService

log = get_logger(__name__)

POLL_SECONDS = 0.5
"""How often the store is asked for wishes to cancel."""

TITLE_CHARACTERS = 120
"""How much of a request's first line becomes the run's title."""


class CancelWishes(Protocol):
    """The part of a `TraceReader` that requests to cancel runs are read from."""

    async def find_cancel_requests(self, root_plan_ids: Collection[UUID]) -> set[UUID]:
        """Return those of the runs that somebody wished to be cancelled or deleted."""


class RunReader(CancelWishes, ExchangeReader, Protocol):
    """The part of a `TraceReader` that the launcher needs."""


class RunOptions(TypedDict, total=False):
    """How a run is started, where it matters."""

    agent: str | None
    """The agent to ask, or to carry out the steps of a given plan that name none. None lets the
    planner make a plan."""
    session_id: str | None
    """The conversation that the run belongs to. Unless a plan is given, the agent receives the
    conversation's history (`tracer.runtime.history`)."""
    traceparent: str | None
    """The W3C trace context that the request came with."""
    plan: tuple[str, list[tuple[str | None, str]]] | None
    """A title and steps (agent or None, request) to carry out as they are."""
    subject: str | None
    """Whom the run is about."""
    tags: Sequence[str]
    """Labels."""
    identity: Identity | None
    """Who asks; handed down to the tools. Unless given, whom the scope around says."""
    observe: Callable[[Sequence[Event]], None] | None
    """Receives the run's events as they are recorded."""
    timeout: float | None
    """After how many seconds the run is over, if before the application's own time."""


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended."""

    root_plan_id: UUID
    status: Status
    reason: str | None
    summary: str | None
    error: ErrorInfo | None


@dataclass(eq=False)
class _Active:
    scope: AgentRun
    runner: PlanRunner
    task: asyncio.Task[Ending]


class RunLauncher:
    """Runs an application's agents in this process.

    Use it as an async context manager, from one event loop; leaving it cancels what still runs.
    """

    def __init__(
        self,
        application: Application,
        recorder: Recorder,
        reader: RunReader,
        *,
        sessions: SessionStates | None = None,
        ids: IdSource = new_id,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """Connect an application with a recorder.

        Args:
            application: Whose agents to run.
            recorder: Records the runs; open while the launcher is.
            reader: Reads requests to cancel runs, and the earlier runs of a session.
            sessions: Stores the state and the runs of sessions; by default in memory.
            ids: Mints the ids of everything that is recorded.
            poll_seconds: How often to look for wishes.

        Raises:
            ConfigurationError: The application has no model.
        """
        self._application = application = application.with_model()
        self._recorder = recorder
        self._reader = reader
        resources = ToolResources(
            sessions=sessions or MemorySessions(),
            initial_state=application.initial_state,
            resolve_token=application.token_resolver,
        )
        self.tools = ToolService(application.registry, recorder, resources, ids=ids)
        """Calls the application's registered tools outside of its runs."""
        self._ids = ids
        self._poll_seconds = poll_seconds
        self._active: dict[UUID, _Active] = {}
        self._any_active = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def active_runs(self) -> list[UUID]:
        """The ids of the runs that have begun here and have not ended, oldest first."""
        return list(self._active)

    async def __aenter__(self) -> Self:
        await self.tools.__aenter__()
        for agent in self._application.agents:
            agent.log_missing(self._application.registry)
        self._watcher = asyncio.create_task(self._watch(), name="tracer-cancel-watcher")
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def start(self, request: str, **options: Unpack[RunOptions]) -> Run:
        """Start a run and return it once its record is durable; it goes on in the background.

        The run comes from here and not from the store, where it may not be yet: while that does
        not answer, the record is in the spool.

        Args:
            request: What is asked.
            options: See `RunOptions`.

        Raises:
            BadRequest: The application has no such agent, or the plan no steps.
            StoreUnavailable: This process is stopping.
        """
        active = self._launch(request, options)
        started = asyncio.create_task(active.runner.started.wait())
        try:
            await asyncio.wait({started, active.task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            started.cancel()
        if active.runner.start is None:
            raise StoreUnavailable("The run did not begin: this process is stopping.")
        return _as_run(active.runner.start)

    async def run(self, request: str, **options: Unpack[RunOptions]) -> RunOutcome:
        """Run a request and return how it ended. Being cancelled cancels the run.

        Args:
            request: What is asked.
            options: See `RunOptions`.

        Raises:
            BadRequest: The application has no such agent, or the plan no steps.
            asyncio.CancelledError: The caller was cancelled; the run has its ending.
        """
        active = self._launch(request, options)
        waited = await wait_for_end(active.task, deadline=None, grace=None)
        if waited is Waited.CANCELLED:
            raise asyncio.CancelledError
        ending = active.runner.ending
        return RunOutcome(
            root_plan_id=active.scope.root_plan_id,
            status=ending.status,
            reason=ending.reason,
            summary=ending.result,
            error=ending.error,
        )

    async def aclose(self) -> None:
        """Cancel what still runs, and return when its records have their endings."""
        self._is_closed = True
        if self._watcher is not None:
            self._watcher.cancel()
        runs = list(self._active.values())
        for each in runs:
            each.task.cancel()
        try:
            if runs:
                await asyncio.wait({each.task for each in runs})
        finally:
            await self.tools.aclose()

    def _launch(self, request: str, options: RunOptions) -> _Active:
        if self._is_closed:
            raise StoreUnavailable("The run did not begin: this process is stopping.")
        application = self._application
        head, plan = self._head_and_plan(request, options)
        scope = AgentRun(
            application,
            self._recorder,
            self.tools.resources,
            self._ids(),
            self._ids,
            self.tools.left_behind,
            session_id=head.session_id,
            identity=options.get("identity") or current_identity(),
            max_parallel_calls=application.max_parallel_calls,
            observe=options.get("observe"),
        )
        deadline = earlier(earlier(None, application.run_timeout), application.budget.seconds)
        place = PlanPlace(
            plan_id=scope.root_plan_id,
            deadline=earlier(deadline, options.get("timeout")),
            identity=scope.identity,
        )
        history: Callable[[], Awaitable[Sequence[Message]]] | None = None
        if scope.session_id is not None and application.history_characters:
            reads = options.get("plan") is None
            history = partial(join_session, scope, self._reader, reads=reads)
        runner = PlanRunner(scope, place, head, plan, history)
        name = f"tracer-run-{scope.root_plan_id}"
        with tool_context_bound(None):  # also where a tool starts it: it is a run of its own
            task = asyncio.create_task(_run(runner, scope), name=name)
        active = _Active(scope, runner, task)
        self._active[scope.root_plan_id] = active
        self._any_active.set()
        task.add_done_callback(lambda _: self._forget(active))
        return active

    def _forget(self, active: _Active) -> None:
        del self._active[active.scope.root_plan_id]
        if not self._active:
            self._any_active.clear()

    def _head_and_plan(self, request: str, options: RunOptions) -> tuple[PlanHead, Plan | None]:
        agent, given = options.get("agent"), options.get("plan")
        if not request.strip():
            raise BadRequest("Nothing is asked: put into words what the agents are to do.")
        if agent is not None:
            self._application.agent(agent)
        title = _title(self._recorder.redaction.text(request))  # before it is cut in two
        plan: Plan | None = None
        agent_name: str | None = PLANNER
        if given is not None:
            title, steps = given
            plan = Plan(title, tuple(PlanStep(asked, who or agent) for who, asked in steps))
            names = {self._application.agent(step.agent).name for step in plan.steps}
            agent_name = names.pop() if len(names) == 1 else None
            if not plan.steps:
                raise BadRequest("A plan needs at least one step: add one.")
        elif agent is not None:
            agent_name = self._application.agent(agent).name
            plan = Plan(title, (PlanStep(request, agent),))
        head = PlanHead(
            title=title,
            user_request=request,
            agent_name=agent_name,
            session_id=options.get("session_id"),
            subject=options.get("subject"),
            tags=tuple(options.get("tags", ())),
            traceparent=options.get("traceparent"),
        )
        return head, plan

    async def _watch(self) -> None:
        while True:
            await self._any_active.wait()
            try:
                wished = await self._reader.find_cancel_requests(self.active_runs)
            except Exception as error:
                # Whatever it was, the next wish must be read.
                log.warning("cancel_wishes_unread", error=type(error).__name__)
            else:
                for root_plan_id in wished:
                    self._cancel(root_plan_id)
            await asyncio.sleep(self._poll_seconds)

    def _cancel(self, root_plan_id: UUID) -> None:
        active = self._active.get(root_plan_id)
        if active is not None and active.scope.cancel_reason is None:
            active.scope.cancel_reason = Reason.CANCEL_REQUESTED.value
            active.task.cancel()


async def _run(runner: PlanRunner, scope: AgentRun) -> Ending:
    try:
        return await runner.run()
    finally:
        await scope.end()


def _as_run(start: PlanStarted) -> Run:
    return Run(
        root_plan_id=start.root_plan_id,
        status=Status.RUNNING,
        started_at=start.at,
        recorder_id=start.recorder_id,
        title=start.title,
        agent_name=start.agent_name,
        session_id=start.session_id,
        subject=start.subject,
        tags=sorted(set(start.tags)),
        traceparent=start.traceparent,
    )


def _title(request: str) -> str:
    """Return the title of a run that nobody named: what was asked, in one line."""
    line = next((each.strip() for each in request.splitlines() if each.strip()), "")
    return line if len(line) <= TITLE_CHARACTERS else f"{line[: TITLE_CHARACTERS - 1]}…"
