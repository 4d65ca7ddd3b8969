"""The launcher: starts an application's runs, and cancels them on request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
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
from tracer.runtime.application import Application, ApplicationRun
from tracer.runtime.chat_model import Message
from tracer.runtime.history import ExchangeReader, join_session
from tracer.runtime.plan import PlanStep, PlanSteps
from tracer.runtime.plan_runner import PlanContext, PlanDetails, PlanRunner
from tracer.runtime.planner import PLANNER
from tracer.storage.memory.sessions import MemorySessions
from tracer.store import CancelRequestReader
from tracer.tasks import Waited, capped_deadline, wait_for_end
from tracer.tools.definition.results import Ending
from tracer.tools.resources import ToolResources
from tracer.tools.service import ToolService

log = get_logger(__name__)

POLL_SECONDS = 0.5
"""How often the store is polled for requests to cancel."""

TITLE_CHARACTERS = 120
"""The largest length of a title that is taken from the request."""


class RunReader(CancelRequestReader, ExchangeReader, Protocol):
    """The part of a `TraceReader` that the launcher needs."""


class RunOptions(TypedDict, total=False):
    """Optional settings of a run."""

    agent: str | None
    """The agent that answers the request. If `plan` is set, this agent carries out the plan's steps
    that name no agent. If both are None, the planner makes a plan."""
    session_id: str | None
    """The conversation that the run belongs to. Unless `plan` is set, the agent receives the
    conversation's history (`tracer.runtime.history`)."""
    traceparent: str | None
    """The W3C trace context of the request."""
    plan: tuple[str, list[tuple[str | None, str]]] | None
    """A title, and the steps to carry out, each as (agent or None, request). If set, the planner is
    not used."""
    subject: str | None
    """The user for whom the run is made. By default the caller's user id, unless it is the token
    (`Application.record_user`)."""
    tags: Sequence[str]
    """Labels by which runs can be filtered."""
    identity: Identity | None
    """The caller, for the tools. By default, the current identity."""
    observe: Callable[[Sequence[Event]], None] | None
    """Receives the run's events as they are recorded."""
    timeout: float | None
    """After how many seconds the run times out. If the application's `run_timeout` is shorter, that
    timeout applies."""


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended."""

    root_plan_id: UUID
    status: Status
    reason: str | None
    summary: str | None
    error: ErrorInfo | None


@dataclass(eq=False)
class _ActiveRun:
    run: ApplicationRun
    runner: PlanRunner
    task: asyncio.Task[Ending]


class RunLauncher:
    """Runs an application's agents in this process.

    Use it as an async context manager, from one event loop. When the context manager exits, active
    runs are cancelled.
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
            application: The application whose agents to run.
            recorder: Records the runs. It must stay open as long as the launcher.
            reader: Reads requests to cancel runs, and the earlier runs of a session.
            sessions: Stores the state and the runs of sessions; by default in memory.
            ids: Mints the ids of everything that is recorded.
            poll_seconds: How often to poll for requests to cancel.

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
        self._active: dict[UUID, _ActiveRun] = {}
        self._any_active = asyncio.Event()
        self._watcher: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def active_runs(self) -> list[UUID]:
        """The ids of the runs that have started here and have not ended, oldest first."""
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
        """Start a run in the background, and return it once its record is durable.

        While the store does not answer, the record is in the spool, and the store cannot return the
        run yet.

        Args:
            request: The user's request.
            options: See `RunOptions`.

        Raises:
            BadRequest: The request is blank, the application has no such agent, or the plan has no
                steps.
            StoreUnavailable: This process is shutting down.
        """
        active = self._launch(request, options)
        started = asyncio.create_task(active.runner.started.wait())
        try:
            await asyncio.wait({started, active.task}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            started.cancel()
        if active.runner.start is None:
            raise StoreUnavailable(
                "The run was not started, because this process is shutting down."
            )
        return _as_run(active.runner.start)

    async def run(self, request: str, **options: Unpack[RunOptions]) -> RunOutcome:
        """Run a request and return how it ended. Cancelling the caller cancels the run.

        Args:
            request: The user's request.
            options: See `RunOptions`.

        Raises:
            BadRequest: The request is blank, the application has no such agent, or the plan has no
                steps.
            asyncio.CancelledError: The caller was cancelled; the run's ending is recorded.
        """
        active = self._launch(request, options)
        waited = await wait_for_end(active.task, deadline=None, grace=None)
        if waited is Waited.CANCELLED:
            raise asyncio.CancelledError
        ending = active.runner.ending
        return RunOutcome(
            root_plan_id=active.run.root_plan_id,
            status=ending.status,
            reason=ending.reason,
            summary=ending.result,
            error=ending.error,
        )

    async def aclose(self) -> None:
        """Cancel the active runs, and return when their endings are recorded."""
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

    def _launch(self, request: str, options: RunOptions) -> _ActiveRun:
        if self._is_closed:
            raise StoreUnavailable(
                "The run was not started, because this process is shutting down."
            )
        application = self._application
        details, plan = self._details_and_plan(request, options)
        agent = application.agents_by_name.get(details.agent_name or "")
        run = ApplicationRun(
            application,
            self._recorder,
            self.tools.resources,
            self._ids(),
            self._ids,
            self.tools.background_tasks,
            session_id=details.session_id,
            identity=options.get("identity") or current_identity(),
            session_state=None if agent is None else agent.session_state,
            max_parallel_calls=application.max_parallel_calls,
            observe=options.get("observe"),
        )
        deadline = capped_deadline(
            capped_deadline(None, application.run_timeout), application.budget.seconds
        )
        context = PlanContext(
            plan_id=run.root_plan_id,
            deadline=capped_deadline(deadline, options.get("timeout")),
            identity=run.identity,
        )
        history: Callable[[], Awaitable[Sequence[Message]]] | None = None
        if run.session_id is not None and application.history_characters:
            reads = options.get("plan") is None
            history = partial(join_session, run, self._reader, reads=reads)
        runner = PlanRunner(run, context, details, plan, history)
        name = f"tracer-run-{run.root_plan_id}"
        # Without the context of a tool that starts the run: it is no sub-plan of that tool's call.
        with tool_context_bound(None):
            task = asyncio.create_task(_run(runner, run), name=name)
        active = _ActiveRun(run, runner, task)
        self._active[run.root_plan_id] = active
        self._any_active.set()
        task.add_done_callback(lambda _: self._remove(active))
        return active

    def _remove(self, active: _ActiveRun) -> None:
        del self._active[active.run.root_plan_id]
        if not self._active:
            self._any_active.clear()

    def _details_and_plan(
        self, request: str, options: RunOptions
    ) -> tuple[PlanDetails, PlanSteps | None]:
        agent, predefined = options.get("agent"), options.get("plan")
        if not request.strip():
            raise BadRequest("The request is blank. Describe what the agents are to do.")
        if agent is not None:
            self._application.agent(agent)
        # Redacted before it is shortened: half a secret would not be recognised.
        title = _title(self._recorder.redaction.text(request))
        plan: PlanSteps | None = None
        agent_name: str | None = PLANNER
        if predefined is not None:
            title, steps = predefined
            plan = PlanSteps(title, tuple(PlanStep(text, name or agent) for name, text in steps))
            names = {self._application.agent(step.agent).name for step in plan.steps}
            agent_name = names.pop() if len(names) == 1 else None
            if not plan.steps:
                raise BadRequest("The plan has no steps. Add at least one.")
        elif agent is not None:
            agent_name = self._application.agent(agent).name
            plan = PlanSteps(title, (PlanStep(request, agent),))
        details = PlanDetails(
            title=title,
            user_request=request,
            agent_name=agent_name,
            session_id=options.get("session_id"),
            subject=options.get("subject"),
            tags=tuple(options.get("tags", ())),
            traceparent=options.get("traceparent"),
        )
        return details, plan

    async def _watch(self) -> None:
        while True:
            await self._any_active.wait()
            try:
                requested = await self._reader.find_cancel_requests(self.active_runs)
            except Exception as error:
                # Polling must continue after any error.
                log.warning("cancel_wishes_unread", error=type(error).__name__)
            else:
                for root_plan_id in requested:
                    self._cancel(root_plan_id)
            await asyncio.sleep(self._poll_seconds)

    def _cancel(self, root_plan_id: UUID) -> None:
        active = self._active.get(root_plan_id)
        if active is not None and active.run.cancel_reason is None:
            active.run.cancel_reason = Reason.CANCEL_REQUESTED.value
            active.task.cancel()


async def _run(runner: PlanRunner, run: ApplicationRun) -> Ending:
    try:
        return await runner.run()
    finally:
        await run.end()


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
    """Return the default title of a run: the first line of the request, shortened."""
    line = next((each.strip() for each in request.splitlines() if each.strip()), "")
    return line if len(line) <= TITLE_CHARACTERS else f"{line[: TITLE_CHARACTERS - 1]}…"
