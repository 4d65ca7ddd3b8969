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

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeVar

from opentelemetry import trace

from tracer.client.block import Work, current_work, is_finalizing
from tracer.client.connection import Connection
from tracer.client.rounds import ThinkAct, ToolCall
from tracer.client.traced import KINDS, Kind, traced
from tracer.client.work import Plan, Step
from tracer.context import ToolContext, current_tool_context

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
        within: Work | None = None,
    ) -> ThinkAct:
        """Return a round that starts with its block.

        Args:
            messages: What the model is given: a list, or the text of a JSON array.
            model: The model, as it is asked for.
            within: What it hangs under.
        """
        step, around = self._step(self._around(within), model)
        return ThinkAct(step, messages=messages, model=model, around=around)

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
