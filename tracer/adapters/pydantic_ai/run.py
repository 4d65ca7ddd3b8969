"""Record one run of a pydantic-ai agent: its plan, rounds and tool calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.tools import DeferredToolRequests

from tracer.adapters.hooks import parameters_of
from tracer.client import Tracing
from tracer.client.work import Chosen, Plan, ThinkAct, ToolCall, current_work, text_of
from tracer.records import Reason
from tracer.records.prices import TokenUsage, cost_of

NATIVE = "NATIVE"
"""The type of a tool that the model's provider ran itself."""


class PydanticAIRun:
    """One run of an agent: its plan, its latest round and the open calls."""

    def __init__(self, tracing: Tracing) -> None:
        self.plan: Plan | None = None
        self._tracing = tracing
        self._thought: ThinkAct | None = None
        self._open: list[tuple[ToolCallPart, ToolCall]] = []
        """The calls of the latest answer that have not ended."""
        self._offered: frozenset[str] = frozenset()

    def start(self, ctx: Any) -> None:
        """Start the plan."""
        name = (ctx.agent.name if ctx.agent else None) or "agent"
        conversation = ctx.conversation_id
        plan = self._tracing.plan(
            agent=name,
            request=_asked(ctx.prompt),
            session_id=None if _is_generated(conversation) else conversation,
        )
        plan.session_id = plan.session_id or conversation
        plan.start()
        self.plan = plan
        plan.own_step  # noqa: B018 - reading it starts the step

    def finish(self, output: Any) -> None:
        """End the plan with the run's output."""
        assert self.plan is not None
        is_deferral = isinstance(output, DeferredToolRequests)
        deferred = [*output.calls, *output.approvals] if is_deferral else []
        self._end_open({call.tool_call_id for call in deferred})
        self.plan.finish(output)

    def end_with(self, error: BaseException) -> None:
        """End the plan with an exception of the agent."""
        assert self.plan is not None
        self._end_open(set())
        if isinstance(error, UsageLimitExceeded):
            self.plan.fail(error, Reason.BUDGET_EXHAUSTED)
        else:
            self.plan.end_with(error)

    # --- Rounds --------------------------------------------------------------------------------

    def ask(self, request: Any) -> ThinkAct | None:
        """Start a round and return it.

        If a round is already open, the request is a retry in this round, so return None. Also
        return None if the plan has not started.
        """
        if self.plan is None or (self._thought is not None and not self._thought.has_ended):
            return None
        self._thought = self._tracing.think_act(
            _messages_text(request.messages),
            model=request.model.model_name,
            provider=request.model.system,
            parameters=parameters_of(request.model_settings or {}),
            tools=[
                {
                    "name": tool.name,
                    "description": tool.description,
                    "parameters": tool.parameters_json_schema,
                }
                for tool in request.model_request_parameters.function_tools
            ],
            within=self.plan.own_step,
        )
        self._thought.start()
        return self._thought

    def record_answer(self, request: Any, response: ModelResponse) -> None:
        """End the round with an answer and its tool calls."""
        if self._thought is None or self._thought.has_ended:
            self.ask(request)  # a capability answered in place of the model
        if self._thought is None:
            return
        offered = request.model_request_parameters
        outputs = {tool.name for tool in offered.output_tools}
        self._offered = frozenset(tool.name for tool in offered.function_tools)
        parts = [
            part
            for part in response.parts
            if isinstance(part, NativeToolCallPart)
            or (isinstance(part, ToolCallPart) and part.tool_name not in outputs)
        ]
        usage = _usage(response)
        model = response.model_name or request.model.model_name
        calls = self._thought.finish(
            response.text,
            model=model,
            input_tokens=usage.input or None,
            output_tokens=usage.output or None,
            cost_usd=cost_of(usage, model, provider=response.provider_name)
            if usage.input
            else None,
            finish_reasons=response.finish_reason,
            cache_read_tokens=usage.cache_read or None,
            cache_written_tokens=usage.cache_written or None,
            reasoning_tokens=usage.reasoning or None,
            tool_calls=[
                Chosen(
                    part.tool_name,
                    arguments_of(part),
                    part.tool_call_id,
                    NATIVE if isinstance(part, NativeToolCallPart) else None,
                )
                for part in parts
            ],
        )
        for part, call in zip(parts, calls, strict=True):
            if isinstance(part, ToolCallPart):
                self._open.append((part, call))
            else:
                _end_native(call, part, response.parts)

    def record_failure(self, error: BaseException) -> None:
        """End the round with an exception."""
        if self._thought is not None:
            self._thought.end_with(error)

    # --- Tool calls ----------------------------------------------------------------------------

    def call(self, part: ToolCallPart) -> ToolCall:
        """Return the recorded call that a tool executes; a new call if the model chose none."""
        named = [
            (each, call)
            for each, call in self._open
            if each is part
            or (each.tool_call_id == part.tool_call_id and each.tool_name == part.tool_name)
        ]
        # Prefer the same object, then equal arguments, then the order of the answer.
        best = min(
            named, key=lambda each: (each[0] is not part, each[0].args != part.args), default=None
        )
        if best is not None and not best[1].has_ended:
            return best[1]
        return self.unlisted_call(part.tool_name, arguments_of(part), part.tool_call_id)

    def unlisted_call(self, name: str, arguments: Any, call_id: str | None = None) -> ToolCall:
        """Return a new call that no model of this run requested."""
        assert self.plan is not None
        step = self.plan.own_step
        work = current_work(self._tracing)
        is_nested = isinstance(work, ToolCall) and work.step is step
        parent_work = work if is_nested else self._thought or step
        return self._tracing.tool_call(
            name, arguments, provider_call_id=call_id, within=parent_work
        )

    def end_unrun(self, messages: Iterable[ModelMessage]) -> None:
        """End the last round's calls that no hook reported. `messages` contains their results."""
        self._open = [(part, call) for part, call in self._open if not call.has_ended]
        if not self._open:
            return
        tool_returns = {
            (part.tool_call_id, part.tool_name): part
            for message in messages
            if isinstance(message, ModelRequest)
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        }
        for part, call in self._open:
            self._end(call, tool_returns.get((part.tool_call_id, part.tool_name)))
        self._open = []

    def _end(self, call: ToolCall, answer: ToolReturnPart | None) -> None:
        text = answer.model_response_str() if answer is not None else None
        if call.name not in self._offered:
            call.fail(text or "The agent has no such tool.", Reason.UNKNOWN_TOOL)
        elif answer is None or answer.outcome == "interrupted":
            call.cancel(Reason.NOT_REACHED)
        elif answer.outcome == "success":
            call.finish(answer.content)
        else:
            reasons = {"denied": Reason.DENIED, "retried": Reason.INVALID_ARGUMENTS}
            call.fail(text or answer.outcome, reasons.get(answer.outcome))

    def _end_open(self, deferred: set[str]) -> None:
        """End all open calls. Calls whose id is in `deferred` get the reason `deferred`."""
        for part, call in self._open:
            if call.has_ended:
                continue
            if part.tool_call_id in deferred:
                call.cancel(Reason.DEFERRED)
            elif call.has_started:
                call.cancel()
            else:
                self._end(call, None)
        self._open = []
        if self._thought is not None:
            self._thought.cancel()


def _end_native(call: ToolCall, part: NativeToolCallPart, parts: Sequence[Any]) -> None:
    """End a call of a tool that the provider ran. The model's answer contains the tool's result."""
    call.start()
    for each in parts:
        if isinstance(each, NativeToolReturnPart) and each.tool_call_id == part.tool_call_id:
            if each.outcome != "success":
                call.fail(each.model_response_str())
            else:
                call.finish(each.content)
            return
    call.finish()


def _is_generated(conversation_id: str | None) -> bool:
    """Return whether pydantic-ai created the id. It creates a UUIDv7 for each new conversation."""
    try:
        return UUID(conversation_id).version == 7
    except (TypeError, ValueError):
        return False


def _asked(prompt: Any) -> str | None:
    if isinstance(prompt, Sequence) and all(isinstance(each, str) for each in prompt):
        return prompt if isinstance(prompt, str) else "\n".join(prompt)
    return text_of(prompt)


def arguments_of(part: ToolCallPart | NativeToolCallPart) -> str:
    """Return the arguments as the model wrote them, or as JSON if the provider parsed them."""
    return part.args if isinstance(part.args, str) else part.args_as_json_str()


def _messages_text(messages: Sequence[ModelMessage]) -> str | None:
    """Return messages as JSON in the format of pydantic-ai's spans, with instructions first."""
    recorded: list[Any] = [
        dict(each) for each in InstrumentationSettings().messages_to_otel_messages(list(messages))
    ]
    latest = messages[-1] if messages else None
    if isinstance(latest, ModelRequest) and latest.instructions:
        parts = [{"type": "text", "content": latest.instructions}]
        recorded.insert(0, {"role": "system", "parts": parts})
    return text_of(recorded)


def _usage(response: ModelResponse) -> TokenUsage:
    """Return the tokens of an answer. Failed attempts that produced an answer count, too."""
    failed = [each.usage for each in response.failed_attempts or () if each.usage is not None]
    usages = [response.usage, *failed]
    return TokenUsage(
        sum(each.input_tokens for each in usages),
        sum(each.output_tokens for each in usages),
        sum(each.cache_read_tokens for each in usages),
        sum(each.cache_write_tokens for each in usages),
        sum((each.details or {}).get("reasoning_tokens", 0) for each in usages),
    )
