"""Recording by hand: what `tracer.connect()` returns.

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
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from functools import partial, wraps
from typing import Any, Literal, ParamSpec, TypeVar, cast, get_args

from opentelemetry import trace

from tracer.client.block import Work, current_work, is_finalizing, text_of
from tracer.client.connection import Connection
from tracer.client.work import Plan, Step, ThinkAct, ToolCall
from tracer.context import ToolContext, current_tool_context

Kind = Literal["plan", "step", "think_act", "tool_call"]
KINDS: tuple[Kind, ...] = get_args(Kind)

YIELDED_CHARACTERS = 1_000_000
"""How much is kept of what a generator yields: it may never end."""

AnyWork = Plan | Step | ThinkAct | ToolCall
StartWork = Callable[[tuple[Any, ...], dict[str, Any]], AnyWork]


def traced(
    tracing: Tracing, kind: Kind, name: str | None, function: Callable[Parameters, Result]
) -> Callable[Parameters, Result]:
    """Return a function that does the same, and records each call; see `Tracing.traced`."""
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
    """Return what a call of the function is recorded as."""
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
    """Return what was given to a function, by the names of its parameters."""
    try:
        signature = inspect.signature(function)
        given = signature.bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        # It is called wrongly, which it will say itself; or it is one of those that cannot tell.
        return {"args": args, "kwargs": kwargs}
    for position, parameter in enumerate(signature.parameters.values()):
        if position == 0 and parameter.name in ("self", "cls"):
            given.pop(parameter.name, None)
        elif parameter.kind is parameter.VAR_KEYWORD:
            given.update(given.pop(parameter.name, {}))
    return dict(given)


def _request(arguments: dict[str, Any]) -> str | None:
    """Return what was asked: the only text there is, or else all arguments."""
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


# A generator is current while it runs, and not while its reader does: both share a context.


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
            go_on = partial(generator.send, None)
            while True:
                with work.as_current():
                    item = go_on()
                yielded.add(item)
                try:
                    go_on = partial(generator.send, (yield item))
                except GeneratorExit:
                    with work.as_current():
                        generator.close()
                    raise
                except BaseException as thrown:
                    go_on = partial(generator.throw, thrown)
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
            go_on: Callable[[], Awaitable[Any]] = partial(generator.asend, None)
            while True:
                with work.as_current():
                    item = await go_on()
                yielded.add(item)
                try:
                    go_on = partial(generator.asend, (yield item))
                except GeneratorExit:
                    with work.as_current():
                        await generator.aclose()
                    raise
                except BaseException as thrown:
                    go_on = partial(generator.athrow, thrown)
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
    """What a generator yielded, as far as it is kept."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._jsons: list[str] = []
        self._characters = 0

    def add(self, item: Any) -> None:
        """Keep an item as it is now: whoever reads it may change it, or use it up."""
        if self._characters < YIELDED_CHARACTERS:
            json = text_of([item]) or ""
            self._jsons.append(json[1:-1])
            self._characters += len(json)
            if isinstance(item, str):
                self._texts.append(item)

    def end(self, work: AnyWork, error: BaseException | None) -> None:
        """End `work` with what was yielded, unless it has ended."""
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
    """A connection, and what starts work on it.

    What starts hangs under `within`, or else under the innermost work around this code: a block of
    this connection, in the same task or thread or above it, or a tool call of our own runtime.
    Without such work, it gets a root plan of its own. If the garbage collector runs a finalizer,
    only `within` and the finalizer's own blocks count.
    """

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
        within: Work | None = None,
    ) -> Plan:
        """Return a plan that starts with its block: a sub-plan within a tool call or a step.

        Args:
            title: What it is called.
            request: What was asked, in the words that were used.
            agent: The agent that it is given to.
            steps: Its steps in order, as pairs of an agent's name and what that is asked; what is
                done outside of them belongs to a step of its own.
            session_id: The conversation; of a root plan only.
            subject: Whom the run is about; of a root plan only.
            tags: Labels; of a root plan only.
            metadata: Metadata of the run, stored as JSON; for a root plan only.
            within: What it hangs under.
        """
        return Plan(
            self,
            self._opener(within),
            title=title,
            request=request,
            agent=agent,
            steps=steps,
            session_id=session_id,
            subject=subject,
            tags=tags,
            metadata=metadata,
            traceparent=_traceparent(),
        )

    def step(
        self, agent: str | None = None, request: str | None = None, *, within: Plan | None = None
    ) -> Step:
        """Return a step that its plan did not announce; it starts with its block.

        Args:
            agent: The agent that carries it out.
            request: What that is asked to do.
            within: The plan; unless given, the one around this code.
        """
        plan = within or _plan_of(self._around(None))
        if plan is not None:
            return Step(plan, agent, request)
        plan = self.plan(request, request=request, agent=agent)
        return Step(plan, agent, request, around=plan)

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
        """Return a round that starts with its block.

        Args:
            messages: What the model is given: a list, or the text of a JSON array.
            model: The model, as it is asked for.
            provider: The provider of the model, such as `openai`.
            parameters: The parameters of the request, such as `{"temperature": 0.2}`.
            tools: The tools that the model can choose, as its API takes them.
            node: The node of the agent's graph that asks the model.
            within: What it hangs under.
        """
        step, around = self._step(self._around(within), model)
        return ThinkAct(
            step,
            messages=messages,
            model=model,
            provider=provider,
            parameters=parameters,
            tools=tools,
            node=node,
            around=around,
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
        """Return a tool call that no recorded answer chose; it starts with its block.

        Those that a model chose, `ThinkAct.finish` returns.

        Args:
            name: The tool's name.
            arguments: Text as it was given, or what becomes JSON.
            provider_call_id: The id that the model's provider gave, as it came.
            tool_type: The kind of tool.
            within: What it hangs under: a round, a step, or a tool call that it is an item of.
        """
        work = self._around(within)
        step, around = self._step(work, name)
        return ToolCall(
            step,
            name,
            arguments,
            thought=work if isinstance(work, ThinkAct) else None,
            parent=work if isinstance(work, ToolCall) else None,
            provider_call_id=provider_call_id,
            tool_type=tool_type,
            around=around,
        )

    def traced(
        self, kind: Kind = "tool_call", name: str | None = None
    ) -> Callable[[Callable[Parameters, Result]], Callable[Parameters, Result]]:
        """Return a decorator: each call of the function is recorded, with arguments and result.

        It is for functions, coroutine functions, and generators of both kinds: of those the result
        is what they yielded, text joined. Outside of any work, each call is a run of its own.

        Args:
            kind: What a call is. A `plan` has the name as its title and the arguments as its
                request; a `step` the name as its agent and the arguments as its request; a
                `think_act` the argument `messages`, or else all of them, as its messages.
            name: Instead of the function's own; of a `think_act` the model.

        Raises:
            ValueError: The kind is none of these: said here, so that no call fails by it.
        """
        if callable(kind):
            raise ValueError("Write it with parentheses: @tracing.traced().")
        if kind not in KINDS:
            raise ValueError(f"There is no kind {kind!r} of work. Name one of: {', '.join(KINDS)}.")
        return lambda function: traced(self, kind, name, function)

    def _around(self, within: Work | None) -> Work | None:
        """Return what new work hangs under; None where there is nothing."""
        work = within or current_work(self)
        if work is None and not is_finalizing():
            context = current_tool_context()
            if context is not None and context.toolcallId is not None and context.is_recorded:
                work = self._call_of(context)
        return work

    def _opener(self, within: Work | None) -> ToolCall | Step | None:
        match self._around(within):
            case ToolCall() | Step() as opener:
                return opener
            case ThinkAct(step=step):
                return step
            case Plan() as plan:
                return plan.own_step
            case _:
                return None

    def _step(self, work: Work | None, title: str | None) -> tuple[Step, Plan | None]:
        """Return the step that what hangs under `work` belongs to, and a plan made for it alone."""
        match work:
            case ThinkAct(step=step) | ToolCall(step=step) | (Step() as step):
                return step, None
            case Plan() as plan:
                return plan.own_step, None
            case _:
                made = self.plan(title)
                return made.own_step, made

    def _call_of(self, context: ToolContext) -> ToolCall:
        """Return a tool call of our own runtime, which records its start and its end itself."""
        plan = Plan(self, None, plan_id=context.plan_id, root_plan_id=context.root_plan_id)
        plan.depth = context.depth
        step = Step(plan, None, None, step_id=context.step_id)
        return ToolCall(step, "", tool_call_id=context.toolcallId)


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
    """Return OpenTelemetry's current span, as W3C writes it."""
    if is_finalizing():
        return None
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{span.trace_flags:02x}"
