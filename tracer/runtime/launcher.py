"""Launch runs of an application, from settings or in a server."""

from __future__ import annotations

import asyncio
import importlib
import operator
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    aclosing,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Literal, Protocol, Self, TypedDict, Unpack
from uuid import UUID

from tracer.concurrency import Waited, capped_deadline, wait_for_end
from tracer.context import Identity, current_identity, tool_context_bound
from tracer.errors import (
    ApplicationUnavailable,
    BadRequest,
    ConfigurationError,
    StoreUnavailable,
    TracerError,
)
from tracer.logs import get_logger
from tracer.recorder import Recorder, spool_for
from tracer.records import IdSource, Reason, Run, Status, new_id
from tracer.records.events import ErrorInfo, Event, PlanStarted
from tracer.records.results import Ending
from tracer.records.sessions import MemorySessions, SessionStates
from tracer.runtime.application import (
    PLANNER,
    Application,
    ApplicationRun,
    ExchangeReader,
    PlanStep,
    PlanSteps,
    Surroundings,
    join_session,
)
from tracer.runtime.chat_model import ChatModel, Message
from tracer.runtime.loop import PlanContext, PlanDetails, PlanRunner
from tracer.settings import Settings
from tracer.storage.http import HttpWriter
from tracer.store import CancelRequestReader
from tracer.tools import RunParameters, ToolResources, ToolService

# --- The launcher: starts an application's runs, and cancels them on request.

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
    conversation's history (`tracer.runtime.application`)."""
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
        parameters = RunParameters(
            session_id=details.session_id,
            identity=options.get("identity") or current_identity(),
            session_state={} if agent is None else agent.session_state,
            limits=application.budget,
            max_parallel_calls=application.max_parallel_calls,
            observe=options.get("observe"),
        )
        run = ApplicationRun(
            application, self._recorder, self.tools.resources, self._ids, parameters
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


# --- Load the application and the model that the settings name, and open their launcher.


@asynccontextmanager
async def with_model_of(settings: Settings, application: Application) -> AsyncIterator[Application]:
    """Yield the application with its own model, or with the model that `TRACER_MODEL` names.

    Raises:
        ConfigurationError: The application has no model.
    """
    async with AsyncExitStack() as stack:
        configured: ChatModel | None = None
        if settings.model is not None and application.model is not None:
            log.warning(
                "tracer_model_ignored",
                application=application.name,
                reason="the application names its own model",
            )
        elif settings.model is not None:
            configured = await stack.enter_async_context(configured_model(settings.model))
        yield application.with_model(configured)


@asynccontextmanager
async def application_launcher(
    application: Application,
    surroundings: Surroundings,
    recorder: Recorder,
    reader: RunReader,
    sessions: SessionStates | None = None,
) -> AsyncIterator[RunLauncher]:
    """Open the resources of an application that has a model, and yield its launcher.

    Args:
        application: The application; see `with_model_of`.
        surroundings: The environment of the resources.
        recorder: Records the runs. It must be open.
        reader: Reads requests to cancel runs, and the earlier runs of a session.
        sessions: Stores the state of sessions; by default in memory.

    Raises:
        Exception: The resources cannot be opened.
    """
    resources = application.resources
    async with (
        nullcontext() if resources is None else resources(surroundings),
        RunLauncher(application, recorder, reader, sessions=sessions) as launcher,
    ):
        yield launcher


@asynccontextmanager
async def launcher_over_http(
    settings: Settings, url: str, application: Application
) -> AsyncIterator[RunLauncher]:
    """Yield a launcher that records to a server over HTTP. Session state is in memory only.

    Args:
        settings: The server's key, the model, the home of the recorder's spool, and the database
            that the application's own tools may use.
        url: The address of the server.
        application: The application to run.
    """
    key, database_url = (
        None if secret is None else secret.get_secret_value()
        for secret in (settings.api_key, settings.database_url)
    )
    redaction = settings.redaction
    async with (
        with_model_of(settings, application) as application,
        aclosing(HttpWriter(url, key, redaction=redaction)) as writer,
        Recorder(
            writer, spool_for(settings.home, url, api_key=key), redaction=redaction
        ) as recorder,
        application_launcher(
            application, Surroundings(database_url, url, key), recorder, writer
        ) as launcher,
    ):
        yield launcher


@asynccontextmanager
async def configured_model(name: str) -> AsyncIterator[ChatModel]:
    """Yield the model that `TRACER_MODEL` names as `openai:NAME`.

    Raises:
        ConfigurationError: The model's API key is not set.
    """
    # Here, since it takes most of a second, which other commands need not wait for.
    from tracer.runtime.openai_model import OpenAIModel

    async with aclosing(OpenAIModel(name.partition(":")[2])) as model:
        yield model


def load_application(settings: Settings) -> Application:
    """Return the application that `TRACER_APP` names as `module:name`.

    Raises:
        ConfigurationError: `TRACER_APP` is not set, the module or name does not exist, or it is no
            `Application`.
    """
    if settings.app is None:
        raise ConfigurationError(
            "TRACER_APP names no application. Set it to MODULE:NAME, for example to "
            "health:application, the demonstration."
        )
    if "" not in sys.path:
        # As `python -m` does: finds modules in the directory that the command was started in.
        sys.path.insert(0, "")
    try:
        application = named(settings.app)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(
            f"TRACER_APP names {settings.app!r}, which cannot be loaded: {error}. "
            "Write it as module:name of a module that can be imported from here."
        ) from error
    if not isinstance(application, Application):
        raise ConfigurationError(
            f"TRACER_APP names {settings.app!r}, which is a {type(application).__name__}: "
            "it must be a tracer.Application."
        )
    return application


def named(path: str) -> object:
    """Import the object that `module:name` names, and return it."""
    module, _, name = path.partition(":")
    return operator.attrgetter(name)(importlib.import_module(module))


# --- The application of a server. Its resources open in the background, so the server can listen.


RETRY_SECONDS = 30.0
"""How long to wait after a failure to open the resources, before the next attempt."""


class ServedApplication:
    """The state of a server's application, and its launcher once the resources are open."""

    def __init__(
        self, launcher: RunLauncher | None = None, refused_tools: Iterable[str] = ()
    ) -> None:
        """Create an application that is ready if there is a launcher, and else loading."""
        self.refused_tools = sorted(refused_tools)
        """The faulty tools that the application works without."""
        self._launcher = launcher
        self._failure: str | None = None
        self._attempted = asyncio.Event()
        if launcher is not None:
            self._attempted.set()

    @property
    def state(self) -> Literal["loading", "ready", "failed"]:
        """Whether the application can start runs. If it failed to open, the server tries again."""
        if self._launcher is not None:
            return "ready"
        return "loading" if self._failure is None else "failed"

    @property
    def launcher(self) -> RunLauncher:
        """The launcher.

        Raises:
            ApplicationUnavailable: The application is loading, or could not be opened.
        """
        if self._launcher is not None:
            return self._launcher
        if self._failure is None:
            raise ApplicationUnavailable
        raise ApplicationUnavailable(
            f"The resources of the server's application cannot be opened: {self._failure} The "
            "server tries again regularly; its log has the reason of each attempt."
        )

    async def opened(self) -> RunLauncher:
        """Wait for the end of the first attempt to open the resources, and return the launcher.

        Raises:
            ApplicationUnavailable: The resources could not be opened.
        """
        await self._attempted.wait()
        return self.launcher

    @asynccontextmanager
    async def opening(
        self,
        open_launcher: Callable[[], AbstractAsyncContextManager[RunLauncher]],
        retry_seconds: float = RETRY_SECONDS,
    ) -> AsyncIterator[Self]:
        """Open the resources in the background. At the end of the `with` block, close them.

        Args:
            open_launcher: Opens the resources and the launcher; called once per attempt.
            retry_seconds: How long to wait after a failed attempt.
        """
        closing = asyncio.Event()
        # One task enters and exits the context manager, as libraries such as anyio require.
        task = asyncio.create_task(
            self._keep_open(open_launcher, closing, retry_seconds), name="tracer-application"
        )
        try:
            yield self
        finally:
            closing.set()
            if self._launcher is None:
                task.cancel()
            if await wait_for_end(task, deadline=None, grace=None) is Waited.CANCELLED:
                raise asyncio.CancelledError
        if not task.cancelled():
            task.result()

    async def _keep_open(
        self,
        open_launcher: Callable[[], AbstractAsyncContextManager[RunLauncher]],
        closing: asyncio.Event,
        retry_seconds: float,
    ) -> None:
        while True:
            try:
                async with open_launcher() as self._launcher:
                    self._attempted.set()
                    await closing.wait()
                return
            except Exception as error:
                if self._launcher is not None:
                    raise  # while closing
                # Messages of other errors may quote a password.
                self._failure = (
                    str(error) if isinstance(error, TracerError) else f"{type(error).__name__}."
                )
                log.error("application_not_opened", exc_info=error)
            self._attempted.set()
            await asyncio.sleep(retry_seconds)
