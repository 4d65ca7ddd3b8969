"""Record by hand: `Tracing`, which `tracer.connect()` returns.

with tracer.connect() as tracing:
    with tracing.plan("How is p-1?", agent="nurse") as plan:
        with tracing.think_act(model="gpt-5-mini", messages=messages) as thought:
            answer = ask(messages)
            calls = thought.finish(answer.text, tool_calls=answer.calls)
        for call in calls:
            with call:
                call.finish(measure(call.arguments))
        plan.finish("121/79: well.")
"""

from __future__ import annotations

import inspect
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import Any, Literal, ParamSpec, TypeVar, cast, get_args
from uuid import UUID

from opentelemetry import trace

from tracer.client.connection import DONE, About, Connection, about_bound, current_about
from tracer.client.work import (
    Plan,
    Step,
    ThinkAct,
    ToolCall,
    Work,
    current_work,
    note_root_plan,
    text_of,
)
from tracer.context import ToolContext, current_tool_context
from tracer.recorder import RecorderCounts, Unrecorded
from tracer.records import new_id
from tracer.records.events import Event, Stamp
from tracer.store import TraceWriter

Kind = Literal["plan", "step", "think_act", "tool_call"]
KINDS: tuple[Kind, ...] = get_args(Kind)

YIELDED_CHARACTERS = 1_000_000
"""How much of a generator's output is recorded. A generator may never end."""

AnyWork = Plan | Step | ThinkAct | ToolCall
StartWork = Callable[[tuple[Any, ...], dict[str, Any]], AnyWork]


def traced(
    tracing: Tracing, kind: Kind, name: str | None, function: Callable[Parameters, Result]
) -> Callable[Parameters, Result]:
    """Return a wrapper of `function` that records each call; see `Tracing.traced`."""
    start = partial(_work, tracing, kind, name, function)
    wrapper: Callable[..., Any]
    if inspect.isasyncgenfunction(function):
        wrapper = _async_generator(start, function)
    elif inspect.isgeneratorfunction(function):
        wrapper = _generator(start, function)
    elif inspect.iscoroutinefunction(function):
        wrapper = _coroutine(start, function)
    else:
        wrapper = _plain(start, function)
    return cast(Callable[Parameters, Result], wraps(function)(wrapper))


def _work(
    tracing: Tracing,
    kind: Kind,
    name: str | None,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> AnyWork:
    """Return a new record (`Work`) for a call of the function."""
    arguments = _bound(function, args, kwargs)
    own_name = name or str(getattr(function, "__name__", type(function).__name__))
    match kind:
        case "plan":
            return tracing.plan(own_name, request=_request(arguments))
        case "step":
            return tracing.step(own_name, _request(arguments))
        case "think_act":
            messages = arguments.get("messages")
            return tracing.think_act(
                messages if isinstance(messages, (list, tuple, str)) else [arguments], model=name
            )
        case "tool_call":
            return tracing.tool_call(own_name, arguments)


def _bound(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call, keyed by the names of the function's parameters."""
    try:
        signature = inspect.signature(function)
        bound = signature.bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        # The arguments do not fit, so the call will raise; or the function has no signature, as
        # some built-in functions.
        return {"args": args, "kwargs": kwargs}
    for position, parameter in enumerate(signature.parameters.values()):
        if position == 0 and parameter.name in ("self", "cls"):
            bound.pop(parameter.name, None)
        elif parameter.kind is parameter.VAR_KEYWORD:
            bound.update(bound.pop(parameter.name, {}))
    return dict(bound)


def _request(arguments: dict[str, Any]) -> str | None:
    """Return the request to record for a call with these arguments.

    If the only argument is text, return this text. Otherwise return all arguments as JSON.
    """
    match list(arguments.values()):
        case []:
            return None
        case [str() as text]:
            return text
        case _:
            return text_of(arguments)


def _plain(start: StartWork, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        with start(args, kwargs) as work:
            result = function(*args, **kwargs)
            work.finish(result)
            return result

    return call


def _coroutine(
    start: StartWork, function: Callable[..., Awaitable[Any]]
) -> Callable[..., Awaitable[Any]]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        async with start(args, kwargs) as work:
            result = await function(*args, **kwargs)
            work.finish(result)
            return result

    return call


# A generator shares the context of its reader. So its work is made current while the generator
# runs, # and restored before the reader continues.


def _generator(
    start: StartWork, function: Callable[..., Generator[Any, Any, Any]]
) -> Callable[..., Generator[Any, Any, Any]]:
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        work, yielded = start(args, kwargs), _Yielded()
        work.start()
        error: BaseException | None = None
        try:
            work.wait()
            generator = function(*args, **kwargs)
            resume = partial(generator.send, None)
            while True:
                with work.as_current():
                    item = resume()
                yielded.add(item)
                try:
                    resume = partial(generator.send, (yield item))
                except GeneratorExit:
                    with work.as_current():
                        generator.close()
                    raise
                except BaseException as thrown:
                    resume = partial(generator.throw, thrown)
        except StopIteration as end:
            return end.value
        except BaseException as raised:
            error = raised
            raise
        finally:
            yielded.end(work, error)
            work.wait()

    return call


def _async_generator(
    start: StartWork, function: Callable[..., AsyncGenerator[Any, Any]]
) -> Callable[..., AsyncGenerator[Any, Any]]:
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        work, yielded = start(args, kwargs), _Yielded()
        work.start()
        error: BaseException | None = None
        try:
            await work.durable()
            generator = function(*args, **kwargs)
            resume: Callable[[], Awaitable[Any]] = partial(generator.asend, None)
            while True:
                with work.as_current():
                    item = await resume()
                yielded.add(item)
                try:
                    resume = partial(generator.asend, (yield item))
                except GeneratorExit:
                    with work.as_current():
                        await generator.aclose()
                    raise
                except BaseException as thrown:
                    resume = partial(generator.athrow, thrown)
        except StopAsyncIteration:
            return
        except BaseException as raised:
            error = raised
            raise
        finally:
            yielded.end(work, error)
            await work.durable()

    return call


class _Yielded:
    """Collects the items of a generator as its recorded output, up to `YIELDED_CHARACTERS`."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._jsons: list[str] = []
        self._characters = 0

    def add(self, item: Any) -> None:
        """Convert an item to JSON at once, because the generator's reader may change it later."""
        if self._characters < YIELDED_CHARACTERS:
            json = text_of([item]) or ""
            self._jsons.append(json[1:-1])
            self._characters += len(json)
            if isinstance(item, str):
                self._texts.append(item)

    def end(self, work: AnyWork, error: BaseException | None) -> None:
        """End `work` with the collected output as the result, unless `work` has already ended."""
        result: str | None = None
        if self._jsons:
            is_text = len(self._texts) == len(self._jsons)
            result = "".join(self._texts) if is_text else f"[{','.join(self._jsons)}]"
        if error is None:
            work.finish(result)
            return
        if isinstance(work, (Step, ToolCall)) and not work.has_ended:
            work.result = result
        work.end_with(error)


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Tracing(Connection):
    """A connection whose methods create plans, steps, think-acts and tool calls.

    A method's parameter `within` sets the work that contains the new work. The default is the
    innermost open `with` block of this connection around the calling code. The block may be in the
    same task or thread, in a task that started it, or around `tracer.in_context`. If there is no
    such block, the default is the tool call that Tracer's own runtime is executing. Without that,
    the new work gets its own root plan.
    """

    def about(
        self,
        *,
        user: str | None = None,
        session: str | None = None,
        tags: Iterable[str] = (),
        metadata: Mapping[str, Any] | None = None,
    ) -> AbstractContextManager[None]:
        """Return a `with` block that states for whom the runs are that start inside.

        The block applies to each way of recording with this connection: blocks, the decorator, the
        adapters and the span processor. Values that a framework or `plan` receives for one run take
        precedence. A run that has already started does not change. Blocks can be nested: the inner
        user and session replace the outer ones, tags are added, and metadata is merged.

        Args:
            user: The user for whom the runs are made: the `subject` of their records.
            session: The id of the conversation.
            tags: Labels.
            metadata: Metadata, stored as JSON.
        """
        outer = current_about(self) or About()
        return about_bound(self, outer.within(user, session, tags, metadata))

    def plan(
        self,
        title: str | None = None,
        *,
        request: str | None = None,
        agent: str | None = None,
        steps: Iterable[tuple[str | None, str | None]] = (),
        session_id: str | None = None,
        subject: str | None = None,
        tags: Sequence[str] = (),
        metadata: Mapping[str, Any] | None = None,
        continues: UUID | str | None = None,
        within: Work | None = None,
    ) -> Plan:
        """Return a plan, which starts when its `with` block starts.

        Inside a tool call or a step, the plan is a sub-plan. Otherwise it is a root plan.

        Args:
            title: The title.
            request: The user's request, unchanged.
            agent: The agent that carries out the plan.
            steps: The steps that are known in advance, in order. Each is a pair of the agent's name
                and its request. Work outside of these steps belongs to an additional step.
            session_id: The id of the conversation; for a root plan only.
            subject: The user for whom the run is made; for a root plan only.
            tags: Labels; for a root plan only.
            metadata: Metadata of the run, stored as JSON; for a root plan only.
            continues: The id of a tool call of an earlier run whose work the run continues, also in
                another process; for a root plan only.
            within: The work that contains the plan.
        """
        opener = self._opener(within)
        if opener is None:
            note_root_plan(self)
            if (about := current_about(self)) is not None:
                subject, session_id, tags, metadata = about.within(
                    subject, session_id, tags, metadata
                )
        return Plan(
            self,
            opener,
            title=title,
            request=request,
            agent=agent,
            steps=steps,
            session_id=session_id,
            subject=subject,
            tags=tags,
            metadata=metadata,
            traceparent=_traceparent(),
            continues=continues,
        )

    def step(
        self, agent: str | None = None, request: str | None = None, *, within: Plan | None = None
    ) -> Step:
        """Return a step that was not passed to `plan`. It starts when its `with` block starts.

        Args:
            agent: The agent that carries out the step.
            request: The agent's request.
            within: The plan that contains the step. The default is the innermost plan around the
                calling code.
        """
        plan = within or _plan_of(self._parent_work(None))
        if plan is not None:
            return Step(plan, agent, request)
        plan = self.plan(request, request=request, agent=agent)
        return Step(plan, agent, request, implicit_plan=plan)

    def think_act(
        self,
        messages: Sequence[Any] | str | None = None,
        *,
        model: str | None = None,
        provider: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        tools: Any = None,
        node: str | None = None,
        within: Work | None = None,
    ) -> ThinkAct:
        """Return a think-act: one request to a model. It starts when its `with` block starts.

        Args:
            messages: The messages of the request: a list, or the text of a JSON array.
            model: The requested model.
            provider: The provider of the model, such as `openai`.
            parameters: The parameters of the request, such as `{"temperature": 0.2}`.
            tools: The tools that the model can choose, in the format of its API.
            node: The node of the agent's graph that calls the model.
            within: The work that contains the think-act.
        """
        step, implicit_plan = self._step(self._parent_work(within), model)
        return ThinkAct(
            step,
            messages=messages,
            model=model,
            provider=provider,
            parameters=parameters,
            tools=tools,
            node=node,
            implicit_plan=implicit_plan,
        )

    def tool_call(
        self,
        name: str,
        arguments: Any = None,
        *,
        provider_call_id: str | None = None,
        tool_type: str | None = None,
        within: Work | None = None,
    ) -> ToolCall:
        """Return a tool call that is not part of a recorded model answer.

        It starts when its `with` block starts. For the calls that a recorded model answer requests,
        use the return value of `ThinkAct.finish`.

        Args:
            name: The tool's name.
            arguments: The text from the model, unchanged, or a value to convert to JSON.
            provider_call_id: The id from the model's provider, unchanged.
            tool_type: The kind of tool.
            within: The work that contains the tool call: a think-act, a step, or a tool call that
                calls several tools.
        """
        work = self._parent_work(within)
        step, implicit_plan = self._step(work, name)
        return ToolCall(
            step,
            name,
            arguments,
            thought=work if isinstance(work, ThinkAct) else None,
            parent=work if isinstance(work, ToolCall) else None,
            provider_call_id=provider_call_id,
            tool_type=tool_type,
            implicit_plan=implicit_plan,
        )

    def traced(
        self, kind: Kind = "tool_call", name: str | None = None
    ) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
        """Return a decorator that records each call of a function, with arguments and result.

        The decorator accepts functions, coroutine functions, generators and asynchronous
        generators. The recorded result of a generator is the list of its items. If all items are
        text, the result is their concatenation. If no other work contains a call, the call is
        recorded as a separate run.

        Args:
            kind: The kind of record for a call. For a `plan`, the name becomes the title, and the
                arguments become the request. For a `step`, the name becomes the agent, and the
                arguments become the request. For a `think_act`, the argument `messages` becomes
                the messages; without this argument, all arguments do.
            name: The name of the record; for a `think_act`, the model. The default is the
                function's name.

        Raises:
            ValueError: The kind is unknown. The error is raised when the decorator is created, not
                when the function is called.
        """
        if callable(kind):
            raise ValueError(
                "`@tracing.traced` was used without parentheses. Write `@tracing.traced()`."
            )
        if kind not in KINDS:
            raise ValueError(f"The kind {kind!r} is unknown. Use one of: {', '.join(KINDS)}.")
        return lambda function: traced(self, kind, name, function)

    def _parent_work(self, within: Work | None) -> Work | None:
        """Return the work that will contain new work; None if the new work needs a root plan."""
        work = within or current_work(self)
        if work is None:
            context = current_tool_context()
            if context is not None and context.tool_call_id is not None and context.is_recorded:
                work = self._call_of(context)
        return work

    def _opener(self, within: Work | None) -> ToolCall | Step | None:
        match self._parent_work(within):
            case ToolCall() | Step() as opener:
                return opener
            case ThinkAct(step=step):
                return step
            case Plan() as plan:
                return plan.own_step
            case _:
                return None

    def _step(self, work: Work | None, title: str | None) -> tuple[Step, Plan | None]:
        """Return the step that contains new work.

        If there was no plan for the new work, create a plan and return it, too.
        """
        match work:
            case ThinkAct(step=step) | ToolCall(step=step) | (Step() as step):
                return step, None
            case Plan() as plan:
                return plan.own_step, None
            case _:
                plan = self.plan(title)
                return plan.own_step, plan

    def _call_of(self, context: ToolContext) -> ToolCall:
        """Return the tool call that Tracer's runtime executes.

        The runtime itself records the start and the end of this call.
        """
        plan = Plan(self, None, plan_id=context.plan_id, root_plan_id=context.root_plan_id)
        plan.depth = context.depth
        step = Step(plan, None, None, step_id=context.step_id)
        return ToolCall(step, "", tool_call_id=context.tool_call_id)


def _plan_of(work: Work | None) -> Plan | None:
    match work:
        case ThinkAct(step=step) | ToolCall(step=step):
            return step.plan
        case Step(plan=plan):
            return plan
        case Plan():
            return work
        case _:
            return None


def _traceparent() -> str | None:
    """Return OpenTelemetry's current span as a W3C `traceparent`."""
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"


# --- The connection that `tracer.connect()` returns if `TRACER_DISABLED` is set.

Answer = TypeVar("Answer")


class DisabledTracing(Tracing):
    """Has the methods of `Tracing`, but records nothing.

    It starts no thread, opens no file and sends no request.
    """

    is_disabled = True

    def __init__(self) -> None:
        self.ids = new_id
        self.open_blocks = {}
        self._unrecorded = Unrecorded()

    @property
    def counts(self) -> RecorderCounts:
        """Counts that are always 0."""
        return RecorderCounts()

    @property
    def waiting(self) -> int:
        """Return 0."""
        return 0

    def stamp(self) -> Stamp:
        """Return the time and the recorder id that an event needs."""
        return self._unrecorded.stamp()

    def record(self, *events: Event) -> Future[None]:
        """Discard the events."""
        return DONE

    def run(self, work: Callable[[TraceWriter], Coroutine[Any, Any, Answer]]) -> Future[Answer]:
        """Raise `RuntimeError`, because the connection has no store."""
        raise RuntimeError(
            "This connection has no store, because TRACER_DISABLED is set. Unset it to use a store."
        )

    def flush(self, seconds: float | None = None) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Do nothing."""
