"""Record one run of the OpenAI Agents SDK: its plans, rounds and calls."""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agents import Handoff, Tool
from agents.exceptions import (
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    ModelBehaviorError,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailTripwireTriggered,
    ToolTimeoutError,
)
from agents.items import ToolApprovalItem
from agents.models.default_models import get_default_model
from agents.tool import FunctionToolResult
from openai import AsyncAzureOpenAI, AsyncOpenAI
from openai.types.chat import ChatCompletion
from openai.types.responses import Response

from tracer.adapters.hooks import parameters_of
from tracer.client import Tracing
from tracer.client.work import Chosen, Plan, Step, ThinkAct, ToolCall, Work, current_work, text_of
from tracer.records import Reason
from tracer.records.prices import TokenUsage, cost_of, provider_at
from tracer.records.results import error_info

# --- Convert the OpenAI Agents SDK's input and output items to recorded values.

LOCAL = ("computer", "local_shell", "shell", "apply_patch")
"""OpenAI's own tools that run in this process. The provider runs OpenAI's other tools."""

_RESULTS = ("output", "outputs", "result", "results")
_NOT_ARGUMENTS = (*"id call_id type name arguments status error server_label".split(), *_RESULTS)


def request_of(run_input: Any) -> str | None:
    """Return the user's last message; None if the input has none.

    Args:
        run_input: The input of a run: text, or items.
    """
    if isinstance(run_input, str) or run_input is None:
        return run_input
    for item in reversed(run_input):
        if isinstance(item, Mapping) and item.get("role") == "user":
            content = item.get("content")
            if isinstance(content, str):
                return content
            texts = [each.get("text") for each in content or () if isinstance(each, Mapping)]
            return "".join(each for each in texts if isinstance(each, str))
    return None


def text_of_answer(output: Iterable[Any]) -> str | None:
    """Return the text of an answer, including refusals; None if the answer has only tool calls."""
    parts = [part for item in output if item.type == "message" for part in item.content]
    texts = [getattr(part, "text", None) or getattr(part, "refusal", None) for part in parts]
    return "".join(text for text in texts if text) or None


def handoffs_of(agent: Any) -> dict[str, str]:
    """Return the names of an agent's hand-off targets, keyed by the names of the hand-off tools."""
    return {
        each.tool_name if isinstance(each, Handoff) else Handoff.default_tool_name(each): (
            each.agent_name if isinstance(each, Handoff) else each.name
        )
        for each in agent.handoffs
    }


def tools_of(agent: Any) -> list[dict[str, Any]]:
    """Return the tools that an agent offers its model, except those of MCP servers."""
    return [
        {
            "name": tool.name,
            "description": getattr(tool, "description", None),
            "parameters": getattr(tool, "params_json_schema", None),
        }
        for tool in agent.tools
    ]


def provider_of(model: Any) -> str | None:
    """Return the name of a model's provider; None if the provider is unknown.

    Args:
        model: The SDK's object for the model.
    """
    client = getattr(model, "_client", None)
    if isinstance(client, AsyncAzureOpenAI):
        return "azure.ai.openai"
    return provider_at(str(client.base_url)) if isinstance(client, AsyncOpenAI) else None


def finish_reason_of(response: Any) -> str | None:
    """Return a model's finish reason in the terms of OpenAI's API; None if it is unknown.

    Args:
        response: A response of the chat completions API or of the responses API.
    """
    if isinstance(response, ChatCompletion):
        return response.choices[0].finish_reason if response.choices else None
    if not isinstance(response, Response):
        return None
    details = response.incomplete_details
    return (details and details.reason) or response.status


def tokens_of(usage: Any) -> TokenUsage | None:
    """Return the tokens of an answer; None if the provider did not report them."""
    if not usage.total_tokens:
        return None
    details = usage.input_tokens_details
    return TokenUsage(
        usage.input_tokens,
        usage.output_tokens,
        details.cached_tokens or 0,
        getattr(details, "cache_write_tokens", 0) or 0,
        getattr(usage.output_tokens_details, "reasoning_tokens", 0) or 0,
    )


# --- Calls that a model chose ------------------------------------------------------------------


def is_call(item: Any) -> bool:
    """Return whether an item of an answer is a tool call of any kind."""
    return str(getattr(item, "type", "")).endswith("_call")


def name_of(item: Any) -> str:
    """Return the name of the tool that an item calls.

    For OpenAI's own tools, the name is taken from the item's type.
    """
    name = getattr(item, "name", None)
    return name if isinstance(name, str) else str(item.type).removesuffix("_call")


def arguments_of(item: Any) -> Any:
    """Return a call's arguments as the model wrote them.

    If the item has no arguments, return its other fields.
    """
    if item.type == "function_call":
        return item.arguments
    if item.type == "custom_tool_call":
        return item.input
    other_fields = item.model_dump(exclude_none=True, exclude=set(_NOT_ARGUMENTS))
    return getattr(item, "arguments", None) or other_fields


def call_id_of(item: Any) -> str | None:
    """Return the provider's id of the call."""
    call_id = getattr(item, "call_id", None)
    return call_id if call_id is not None else getattr(item, "id", None)


def kind_of(item: Any) -> str | None:
    """Return the type of the tool that an item calls; None if the item does not state it."""
    return "MCP" if item.type == "mcp_call" else None


def ran_at_provider(item: Any) -> bool:
    """Return whether the provider itself ran the call.

    Such a call ended before the answer arrived.
    """
    return item.type.removesuffix("_call") not in ("function", "custom_tool", *LOCAL)


def result_of(item: Any) -> Any:
    """Return the result of a call that the provider ran; None if the item has none."""
    result = next((each for key in _RESULTS if (each := getattr(item, key, None))), None)
    if isinstance(result, list):
        return [each.model_dump() if hasattr(each, "model_dump") else each for each in result]
    return result


def error_of(item: Any) -> Any:
    """Return the error of a call that the provider ran; None if it succeeded."""
    error = getattr(item, "error", None)
    status = getattr(item, "status", None)
    return error or (status if status in ("failed", "incomplete") else None)


HANDOFF = "HANDOFF"
UNTITLED = "Agent workflow"
"""The name that the SDK gives to workflows without a name."""

_TRIPWIRES = (ToolInputGuardrailTripwireTriggered, ToolOutputGuardrailTripwireTriggered)


@dataclass(eq=False)
class _Choice:
    """A call that the model chose in the latest round."""

    item: Any
    """The item of the model's answer."""
    call: ToolCall
    hands_to: str | None
    """The name of the agent that a hand-off leads to; None for other calls."""
    is_claimed: bool = False


class OpenAIRun:
    """One run, with all agents that it hands over to."""

    def __init__(self, tracing: Tracing, plan: Plan, config: Any) -> None:
        """Create the run.

        Args:
            tracing: The connection that records the run.
            plan: The plan of the first agent. It has started already.
            config: The run's `RunConfig`.
        """
        self.tracing = tracing
        self.plans = [plan]
        """The plans of the first agent and of each hand-off. Each opened the next one."""
        self.errors: dict[ToolCall, BaseException] = {}
        """The exceptions of calls. The SDK itself converts them to texts for the model."""
        self.model: Any = None
        """The SDK's object for the model that was asked last; None before the first request."""
        self.finish_reason: str | None = None
        """Why the model stopped. Set when the response arrives, and recorded by `answer`."""
        self._config = config
        self._thought: ThinkAct | None = None
        self._round: list[_Choice] = []
        self._local: list[tuple[Any, Tool, ToolCall]] = []
        self._run_before: set[tuple[str | None, str]] = set()

    @property
    def step(self) -> Step:
        """The step of the current agent."""
        return self.plans[-1].own_step

    def unless_sensitive(self, value: Any) -> Any:
        """Return the value, or None if the run's configuration excludes sensitive data."""
        return value if self._config.trace_include_sensitive_data else None

    # --- Rounds --------------------------------------------------------------------------------

    def ask(self, agent: Any, system_prompt: str | None, input_items: list[Any] | str) -> None:
        """Record a request to the model."""
        self._close_round()
        if self._thought is not None:
            self._thought.cancel()
        if isinstance(input_items, str):
            input_items = [{"role": "user", "content": input_items}]
        system = [{"role": "system", "content": system_prompt}] if system_prompt else []
        self._thought = self.tracing.think_act(
            self.unless_sensitive([*system, *input_items]),
            model=self._model(agent),
            provider=provider_of(self.model),
            parameters=parameters_of(agent.model_settings.resolve(self._config.model_settings)),
            tools=tools_of(agent),
            within=self.step,
        )
        self._thought.start()

    def answer(self, agent: Any, response: Any) -> ThinkAct:
        """Record the model's answer and the calls that it chose."""
        thought, self._thought = self._thought, None
        if thought is None:
            thought = self.tracing.think_act(model=self._model(agent), within=self.step)
            thought.start()
        chosen = [each for each in response.output if is_call(each)]
        handoffs = handoffs_of(agent)
        targets = [handoffs.get(name_of(each)) for each in chosen]
        usage = tokens_of(response.usage)
        calls = thought.finish(
            self.unless_sensitive(text_of_answer(response.output)),
            input_tokens=usage and usage.input,
            output_tokens=usage and usage.output,
            cost_usd=cost_of(usage, thought.model, provider=provider_of(self.model))
            if usage and thought.model
            else None,
            cache_read_tokens=(usage and usage.cache_read) or None,
            cache_written_tokens=(usage and usage.cache_written) or None,
            reasoning_tokens=(usage and usage.reasoning) or None,
            finish_reasons=self.finish_reason,
            tool_calls=[
                Chosen(
                    name_of(each),
                    self.unless_sensitive(arguments_of(each)),
                    call_id_of(each),
                    HANDOFF if target is not None else kind_of(each),
                )
                for each, target in zip(chosen, targets, strict=True)
            ],
        )
        self.finish_reason = None
        self._round = [
            _Choice(item, call, target)
            for item, call, target in zip(chosen, calls, targets, strict=True)
        ]
        for choice in self._round:
            if ran_at_provider(choice.item):
                choice.is_claimed = True
                self._end_at_provider(choice)
        return thought

    def _end_at_provider(self, choice: _Choice) -> None:
        call, item = choice.call, choice.item
        call.start()
        call.result = text_of(self.unless_sensitive(result_of(item)))
        if (error := error_of(item)) is None:
            call.finish(call.result)
        else:
            call.fail(text_of(self.unless_sensitive(error)) or "The call failed at the provider.")

    def _close_round(self) -> None:
        """End the round's calls that never ran.

        The next request to the model shows that they will never run.
        """
        for choice in self._round:
            if choice.is_claimed:
                continue
            call = choice.call
            if choice.hands_to is not None:
                call.cancel()
            elif (call.provider_call_id, call.name) in self._run_before:
                # If the model repeats a call, the SDK returns the earlier result.
                call.cancel("repeated")
            elif choice.item.type == "function_call":
                call.fail("The agent has no such tool.", Reason.UNKNOWN_TOOL)
            else:
                call.finish()
        self._round = []

    def _model(self, agent: Any) -> str | None:
        model = self._config.model or agent.model
        if model is None:
            return get_default_model()
        name = model if isinstance(model, str) else getattr(model, "model", None)
        return name if isinstance(name, str) else None

    # --- Calls ---------------------------------------------------------------------------------

    def claim(self, item: Any) -> ToolCall:
        """Return the recorded call that a tool is about to execute.

        Args:
            item: The call's item in the model's answer.
        """
        return self._claim(
            item.name,
            item.arguments,
            item.call_id,
            lambda each: each.item is item,
            lambda each: (each.call.provider_call_id, each.call.name) == (item.call_id, item.name),
        )

    def claim_local(self, context: Any, tool: Tool) -> ToolCall:
        """Return the recorded call that one of OpenAI's own tools is about to execute."""
        call_id = getattr(context, "tool_call_id", None)
        call = self._claim(
            tool.name,
            getattr(context, "tool_arguments", None),
            call_id,
            lambda each: (
                call_id is not None
                and (each.call.provider_call_id, each.call.name) == (call_id, tool.name)
            ),
            lambda each: each.call.name in LOCAL and tool.name.startswith(each.call.name),
        )
        self._local.append((context, tool, call))
        return call

    def _claim(
        self,
        name: str,
        arguments: Any,
        call_id: str | None,
        *tests: Callable[[_Choice], bool],
    ) -> ToolCall:
        for test in tests:
            for choice in self._round:
                if not choice.is_claimed and test(choice):
                    choice.is_claimed = True
                    self._run_before.add((call_id, name))
                    return choice.call
        # In a run that continues after an approval, an earlier run recorded the model's answer.
        return self.tracing.tool_call(
            name, self.unless_sensitive(arguments), provider_call_id=call_id, within=self.step
        )

    def start(self, call: ToolCall, tool: Tool) -> None:
        """Record that a tool is about to run."""
        origin = getattr(tool, "_tool_origin", None)
        if origin is not None and origin.type.value == "mcp":
            call.tool_type = "MCP"
        call.start()

    def end(self, call: ToolCall, result: Any) -> None:
        """Record the result or error of a call.

        Args:
            call: The call.
            result: The value that the SDK returns to the model: the tool's result, or a text
                instead of it.
        """
        if isinstance(result, FunctionToolResult):
            if isinstance(result.run_item, ToolApprovalItem):
                return
            result = result.output
        error = self.errors.pop(call, None)
        if error is None and call.has_started:
            call.finish(self.unless_sensitive(result))
            return
        call.result = text_of(self.unless_sensitive(result))
        if error is not None:
            self.end_with(call, error)
        else:
            call.fail("The call was not approved.", Reason.DENIED)

    def end_local(self, context: Any, tool: Tool, result: Any) -> None:
        """Record the result of one of OpenAI's own tools."""
        for position, (of_context, of_tool, call) in enumerate(self._local):
            if of_context is context and of_tool is tool:
                del self._local[position]
                call.finish(self.unless_sensitive(result))
                return

    def end_with(self, call: ToolCall, error: BaseException) -> None:
        """Record that an exception ended a call."""
        self.errors.pop(call, None)
        self.end_for(call, _cause(error), _reason(error))

    def end_for(self, work: Work, error: BaseException, reason: str | None = None) -> None:
        """Record that an exception ended a plan, step, round or call.

        If the run's configuration excludes sensitive data, the exception's message is omitted.
        """
        if isinstance(error, Exception) and not isinstance(error, CancelledError):
            work.fail(error_info(error, lambda text: self.unless_sensitive(text) or ""), reason)
        else:
            work.end_with(error)

    # --- Agents --------------------------------------------------------------------------------

    def hand_over(self, agent: Any) -> None:
        """Record a hand-off to another agent."""
        for choice in self._round:
            if choice.hands_to == agent.name and not choice.is_claimed:
                choice.is_claimed = True
                choice.call.start()
                choice.call.finish()
                break
        plan = self.tracing.plan(agent=agent.name, request=self.plans[0].request, within=self.step)
        plan.start()
        self.plans.append(plan)

    def finish(self, result: Any) -> None:
        """Record the end of the run.

        Args:
            result: The SDK's `RunResult`, or `RunResultStreaming`.
        """
        error = getattr(result, "_stored_exception", None) or _turns_exceeded(result)
        if error is not None:
            self.fail(error)
            return
        is_stopped = getattr(result, "_cancel_mode", "none") == "after_turn"
        self._cancel_calls(Reason.DEFERRED if result.interruptions else None)
        for plan in reversed(self.plans):
            if is_stopped and result.final_output is None:
                plan.cancel()
            else:
                plan.finish(self.unless_sensitive(result.final_output))

    def fail(self, error: BaseException) -> None:
        """Record that an exception ended the run."""
        if self._thought is not None:
            if isinstance(error, InputGuardrailTripwireTriggered):
                self._thought.cancel()
            else:
                self.end_for(self._thought, error)
        if isinstance(error, ModelBehaviorError):
            self._fail_unusable(error)
        self._cancel_calls(None)
        for plan in reversed(self.plans):
            self.end_for(plan, error, _reason(error))

    def _fail_unusable(self, error: ModelBehaviorError) -> None:
        """If the SDK ended the run because of an invalid call, record the error at this call."""
        for choice in self._round:
            if not choice.is_claimed and f"Tool {choice.call.name} not found" in str(error):
                self.end_for(choice.call, error, Reason.UNKNOWN_TOOL)
            elif not choice.is_claimed and choice.hands_to is not None:
                self.end_for(choice.call, error, Reason.INVALID_ARGUMENTS)

    def _cancel_calls(self, reason: str | None) -> None:
        for call in (*(each.call for each in self._round), *(each[2] for each in self._local)):
            call.cancel(reason)


def agent_run(tracing: Tracing, args: tuple[Any, ...], options: Mapping[str, Any]) -> OpenAIRun:
    """Start the plan of a run.

    Args:
        tracing: The connection that records the run.
        args: The positional arguments of the SDK's function: the agent and the input. May be empty.
        options: The keyword arguments of the SDK's function.
    """
    run_input = args[1] if args else options["starting_input"]
    state = run_input if hasattr(run_input, "_original_input") else options.get("run_state")
    agent = getattr(state, "_current_agent", None) or (args or [options["starting_agent"]])[0]
    config = options["run_config"]
    request = request_of(getattr(state, "_original_input", run_input))
    # An agent as a tool gets the configuration of the outer run, whose title it must not repeat.
    is_titled = config.workflow_name != UNTITLED and current_work(tracing) is None
    plan = tracing.plan(
        config.workflow_name if is_titled else None,
        agent=agent.name,
        request=request if config.trace_include_sensitive_data else None,
        session_id=(
            getattr(options.get("session"), "session_id", None)
            or options.get("conversation_id")
            or config.group_id
        ),
    )
    plan.start()
    return OpenAIRun(tracing, plan, config)


def _turns_exceeded(result: Any) -> MaxTurnsExceeded | None:
    """If a streamed run exceeded its maximum number of turns, return the error, else None.

    The SDK raises this error only in the code that reads the stream.
    """
    limit = result.max_turns if hasattr(result, "_max_turns_handled") else None
    if limit is None or result._max_turns_handled or result.current_turn <= limit:
        return None
    return MaxTurnsExceeded(f"Max turns ({limit}) exceeded")


def _cause(error: BaseException) -> BaseException:
    """Return the tool's own exception if the SDK's error wraps it, else the SDK's error."""
    wraps = str(error).startswith("Error running tool ")
    return error.__cause__ if wraps and error.__cause__ is not None else error


def _reason(error: BaseException) -> str | None:
    if isinstance(error, ToolTimeoutError):
        return Reason.TIMED_OUT
    if isinstance(error, MaxTurnsExceeded):
        return Reason.ROUND_LIMIT
    if isinstance(error, _TRIPWIRES):
        return Reason.DENIED
    if isinstance(error, ModelBehaviorError) and str(error).startswith("Invalid JSON input"):
        return Reason.INVALID_ARGUMENTS
    return None
