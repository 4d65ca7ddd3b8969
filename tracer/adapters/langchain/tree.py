"""The tree of LangChain's open runs, each with its record (`Work`)."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from itertools import takewhile
from typing import Any, NamedTuple
from uuid import UUID
from weakref import WeakKeyDictionary, WeakSet

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage, convert_to_messages
from langchain_core.outputs import LLMResult
from langchain_core.runnables.config import var_child_runnable_config

from tracer.adapters.hooks import log_errors
from tracer.client import Tracing
from tracer.client.work import (
    Chosen,
    Plan,
    Step,
    ThinkAct,
    ToolCall,
    Work,
    current_work,
    innermost_of,
    text_of,
)
from tracer.records import Reason
from tracer.records.arguments import same_arguments
from tracer.records.prices import TokenUsage, cost_of

# --- Convert LangChain's messages and outputs to recorded values.

_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant"}
_REQUEST_KEYS = ("input", "question", "query")
_FINISH_REASONS = ("finish_reason", "stop_reason", "done_reason")
_TOKENS = (("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens"))


class Answer(NamedTuple):
    """A model's answer."""

    text: str | None = None
    calls: tuple[Chosen, ...] = ()
    misformed: tuple[tuple[Chosen, str], ...] = ()
    """Calls whose arguments are not valid JSON, each with an error message."""
    model: str | None = None
    usage: tuple[int | None, int | None] = (None, None)
    """Input and output tokens."""
    cached: tuple[int, int] = (0, 0)
    """The numbers of input tokens that the provider read from its cache and wrote to its cache."""
    message_id: str | None = None
    finish_reason: str | None = None
    reasoning: int = 0
    """The output tokens that the model spent on reasoning."""

    def cost(self, asked_model: str | None) -> Decimal | None:
        """Compute the cost in US dollars by the price list; None if the model's price is unknown.

        Args:
            asked_model: The requested model, used if the answer names no model.
        """
        input_tokens, output_tokens = self.usage
        model = self.model or asked_model
        if input_tokens is None or output_tokens is None or model is None:
            return None
        usage = TokenUsage(input_tokens, output_tokens, *self.cached, self.reasoning)
        return cost_of(usage, model)


class ToolReply(NamedTuple):
    """A tool's answer to the model."""

    name: str | None
    call_id: str | None
    result: Any
    is_error: bool


def recorded_messages(messages: Iterable[BaseMessage]) -> list[dict[str, Any]]:
    """Return each message as recorded: a mapping with role, content, name and tool calls.

    The content is unchanged.
    """
    return [_recorded(each) for each in messages]


def _recorded(message: BaseMessage) -> dict[str, Any]:
    role = getattr(message, "role", None) or _ROLES.get(message.type, message.type)
    fields: dict[str, Any] = {"role": role, "content": message.content}
    if message.name:
        fields["name"] = message.name
    if isinstance(message, ToolMessage):
        fields["tool_call_id"] = message.tool_call_id
    if isinstance(message, AIMessage):
        calls, misformed = _calls(message)
        chosen = [*calls, *(call for call, _ in misformed)]
        if chosen:
            fields["tool_calls"] = [
                {"id": call.provider_call_id, "name": call.name, "arguments": call.arguments}
                for call in chosen
            ]
    return fields


def answer_of(response: LLMResult) -> Answer:
    """Return the answer in a model's response."""
    generation = next((each for several in response.generations for each in several), None)
    if generation is None:
        return Answer()
    usage = (response.llm_output or {}).get("token_usage")
    message = getattr(generation, "message", None)
    if not isinstance(message, AIMessage):
        return Answer(generation.text, usage=_usage(usage))
    calls, misformed = _calls(message)
    metadata = message.response_metadata
    return Answer(
        str(message.text) or None,
        tuple(calls),
        tuple(misformed),
        _text(metadata.get("model_name") or metadata.get("model")),
        _usage(message.usage_metadata or usage),
        _cached(message.usage_metadata),
        message.id,
        next((reason for name in _FINISH_REASONS if (reason := _text(metadata.get(name)))), None),
        _reasoning(message.usage_metadata),
    )


def _usage(usage: Any) -> tuple[int | None, int | None]:
    counts = usage if isinstance(usage, Mapping) else {}
    input_tokens, output_tokens = (
        next((counts[name] for name in names if isinstance(counts.get(name), int)), None)
        for names in _TOKENS
    )
    return input_tokens, output_tokens


def _cached(usage: Any) -> tuple[int, int]:
    details = (usage or {}).get("input_token_details") or {}
    return details.get("cache_read") or 0, details.get("cache_creation") or 0


def _reasoning(usage: Any) -> int:
    details = (usage or {}).get("output_token_details") or {}
    return details.get("reasoning") or 0


def _calls(message: AIMessage) -> tuple[list[Chosen], list[tuple[Chosen, str]]]:
    """Return two lists of a message's tool calls: those with valid arguments, and the others.

    The second list has an error message for each call, because its arguments cannot be parsed.
    """
    texts = _argument_texts(message)
    calls = [
        Chosen(
            each["name"],
            texts.get((position, each["name"], each["id"]), each["args"]),
            each["id"] or None,
        )
        for position, each in enumerate(message.tool_calls)
    ]
    misformed = [
        (
            Chosen(each["name"] or "", each["args"], each["id"] or None),
            each["error"] or "The arguments are not a JSON object.",
        )
        for each in message.invalid_tool_calls
    ]
    return calls, misformed


def _argument_texts(message: AIMessage) -> dict[tuple[int, str | None, str | None], str]:
    """Return the original text of the calls' arguments, if the provider's answer contains it."""
    texts = {}
    chunks = getattr(message, "tool_call_chunks", None) or ()
    for position, chunk in enumerate(chunks):
        texts[position, chunk["name"], chunk["id"]] = chunk["args"]
    for position, call in enumerate(message.additional_kwargs.get("tool_calls") or ()):
        function = call.get("function") or {}
        texts[position, function.get("name"), call.get("id")] = function.get("arguments")
    return {key: text for key, text in texts.items() if isinstance(text, str) and text}


def messages_in(value: Any) -> list[BaseMessage]:
    """Return the messages in the input or output of a graph; an empty list if it has none."""
    if isinstance(value, BaseMessage):
        return [value]
    if isinstance(value, Mapping):
        value = value.get("messages")
    elif hasattr(value, "to_messages"):
        value = value.to_messages()
    if not isinstance(value, list):
        return []
    try:
        return convert_to_messages(value)
    except (ValueError, NotImplementedError):
        return []


def request_in(inputs: Any) -> str | None:
    """Return the last message of the user.

    If the input has no message, return the input as text.
    """
    if user_messages := [each for each in messages_in(inputs) if each.type == "human"]:
        return str(user_messages[-1].text)
    if isinstance(inputs, Mapping):
        inputs = next((inputs[each] for each in _REQUEST_KEYS if each in inputs), inputs)
    if hasattr(inputs, "resume") and inputs.resume is not None:
        inputs = inputs.resume
    return text_of(inputs) or None


def answer_in(output: Any) -> Any:
    """Return an agent's answer: its structured response, else the model's last text.

    If the output contains neither of them, return the whole output.
    """
    if isinstance(output, Mapping) and output.get("structured_response") is not None:
        return output["structured_response"]
    messages = messages_in(output)
    texts = [each.text for each in messages if isinstance(each, AIMessage) and each.text]
    return str(texts[-1]) if texts else str(messages[-1].text) if messages else output


def answered_in(messages: Sequence[BaseMessage]) -> tuple[str | None, list[ToolReply]]:
    """Find the latest message with tool calls. Return its id, and the tools' replies after it."""
    answers = []
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answers.append(_tool_reply(message))
        elif isinstance(message, AIMessage) and message.tool_calls:
            return message.id, answers[::-1]
    return None, []


def result_of(output: Any, call_id: str | None) -> tuple[Any, bool]:
    """Return a tool's result, and whether it is an error."""
    if not isinstance(output, ToolMessage):
        # A LangGraph `Command` contains the message for the model, among other updates.
        update = getattr(output, "update", None)
        messages = [each for each in messages_in(update) if isinstance(each, ToolMessage)]
        output = next((each for each in messages if each.tool_call_id == call_id), output)
    if not isinstance(output, ToolMessage):
        return output, False
    answer = _tool_reply(output)
    return answer.result, answer.is_error


def _tool_reply(message: ToolMessage) -> ToolReply:
    return ToolReply(
        message.name,
        message.tool_call_id or None,
        message.content,
        message.status == "error",
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


# --- Match each starting tool to the tool call that a model requested in the same step.

Path = tuple[UUID, ...]


class _ModelAnswer(NamedTuple):
    path: Path
    """The ids of the LangChain runs that contain the model's run, the outermost first, and then the
    id of the model's run."""
    calls: list[ToolCall]
    message_id: str | None

    @property
    def waiting(self) -> list[ToolCall]:
        return [each for each in self.calls if not each.has_started and not each.has_ended]


class Choices:
    """The tool calls that a step's models chose and that have not succeeded yet."""

    def __init__(self, step: Step) -> None:
        """Create an empty collection.

        Args:
            step: The step that contains the calls.
        """
        self.step = step
        self._rounds: list[_ModelAnswer] = []
        self._failed: list[tuple[object, ToolCall]] = []

    def add(self, path: Path, calls: list[ToolCall], message_id: str | None) -> None:
        """Add the calls that a model chose.

        Args:
            path: The ids of the runs that contain the model's run, the outermost first, and then
                the id of the model's run.
            calls: The pending calls.
            message_id: The id of the model's answer.
        """
        self._rounds = [each for each in self._rounds if each.waiting]
        if calls:
            self._rounds.append(_ModelAnswer(path, calls, message_id))

    def take(
        self,
        name: str,
        arguments: str | None,
        call_id: str | None,
        path: Path,
        retry_key: object,
        containing_run: UUID | None,
    ) -> ToolCall | None:
        """Return the requested call that a starting tool executes; None if no model requested it.

        The provider's call id alone does not identify a call, because such ids repeat. So the
        model answers that are nearest to the tool are searched first. The nearest answer shares the
        most enclosing runs with the tool; among equals, it is the latest.

        If no call matches, the tool may be a retry. Then the call is the failed call that has the
        same `retry_key`, name, id and arguments.

        Args:
            name: The tool's name.
            arguments: The tool's arguments.
            call_id: The provider's id of the call, if it is known.
            path: The ids of the runs that contain the tool's run, the outermost first, and then the
                id of the tool's run.
            retry_key: A value that is the same for the first attempt and its retries.
            containing_run: If given, only calls of models that ran inside this run are considered.
        """
        rounds = sorted(
            (
                each
                for each in self._rounds
                if containing_run is None or containing_run in each.path
            ),
            key=lambda each: _shared(each.path, path),
        )
        named = [[call for call in each.waiting if call.name == name] for each in rounds[::-1]]
        for calls in named:
            if call_id is not None:
                calls = [call for call in calls if call.provider_call_id == call_id]
            for call in calls:
                if same_arguments(call.arguments, arguments):
                    return call
            if call_id is not None and calls:
                # Two calls of a round may have one id: a retry of the first one is not the second.
                return self._retried(name, arguments, call_id, retry_key) or calls[0]
        unstarted = [call for calls in named for call in calls]
        if call_id is None and len(unstarted) == 1:
            return unstarted[0]
        return self._retried(name, arguments, call_id, retry_key)

    def _retried(
        self, name: str, arguments: str | None, call_id: str | None, retry_key: object
    ) -> ToolCall | None:
        for failure in self._failed:
            failed_key, call = failure
            is_same = (failed_key, call.name, call.provider_call_id) == (retry_key, name, call_id)
            if retry_key is not None and is_same and same_arguments(call.arguments, arguments):
                self._failed.remove(failure)
                call.attempt += 1
                call.has_ended = False
                return call
        return None

    def failed(self, call: ToolCall, retry_key: object) -> None:
        """Note that a call failed, so that `take` can find it if the tool is retried.

        Args:
            call: The call.
            retry_key: A value that is the same for the first attempt and its retries.
        """
        self._failed.append((retry_key, call))

    def end_answered(self, messages: Sequence[BaseMessage]) -> None:
        """End calls that the agent answered without running a tool, such as calls of unknown tools.

        Args:
            messages: The messages of the model's next request, or the agent's final messages.
        """
        message_id, answers = answered_in(messages)
        rounds = [each for each in self._rounds if message_id in (None, each.message_id)]
        if not answers or not rounds:
            return
        run = [call for call in rounds[-1].calls if call.has_started]
        for answer in answers:
            if (call := _answered(run, answer)) is not None:
                run.remove(call)
            elif (call := _answered(rounds[-1].waiting, answer)) is not None:
                _end(call, answer)


def _shared(path: Path, other: Path) -> int:
    return sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(path, other, strict=False))
    )


def _answered(calls: list[ToolCall], answer: ToolReply) -> ToolCall | None:
    return next(
        (
            call
            for call in calls
            if call.provider_call_id == answer.call_id and answer.name in (None, call.name)
        ),
        None,
    )


def _end(call: ToolCall, answer: ToolReply) -> None:
    if not answer.is_error:
        call.start()
        call.finish(answer.result)
        return
    text = text_of(answer.result) or ""
    is_unknown = text.startswith(f"Error: {call.name} is not a valid tool")  # LangGraph's words
    call.fail(text, Reason.UNKNOWN_TOOL if is_unknown else None)


MAX_ENDED = 100
"""How many ended runs are kept. Their tasks or threads may still start further runs inside them."""

_SESSIONS = ("thread_id", "session_id", "conversation_id")


class LangChainRun:
    """A run of a chain, a graph, a model, a tool or a retriever."""

    def __init__(
        self, run_id: UUID, parent: LangChainRun | None, name: str | None, about: dict[str, Any]
    ) -> None:
        """Create a run.

        Args:
            run_id: LangChain's id of the run.
            parent: The run that contains it.
            name: LangChain's name of the run.
            about: The other arguments of LangChain's callback.
        """
        self.run_id = run_id
        self.parent = parent
        self.name = name
        self.metadata: dict[str, Any] = about.get("metadata") or {}
        self.tags: list[str] = about.get("tags") or []
        self.inputs: Any = None
        self.work: Work | None = None
        """The record of this run; None if the run is not recorded."""
        self.children: dict[UUID, LangChainRun] = {}
        self.task_runs: dict[UUID, bool] | None = None
        self.is_graph = self.is_interrupted = self.is_structured = False

    @property
    def path(self) -> tuple[UUID, ...]:
        """The ids of the runs that contain this run, the outermost first, and then its own id."""
        return (*(self.parent.path if self.parent else ()), self.run_id)

    @property
    def retry_key(self) -> object:
        """A value that stays the same when a graph or a runnable retries this run."""
        return self.metadata.get("langgraph_checkpoint_ns") or (self.parent and self.parent.run_id)

    @property
    def holder(self) -> LangChainRun | None:
        """The innermost run that contains this run and has a record."""
        return self.parent and self.parent.recorded

    @property
    def recorded(self) -> LangChainRun | None:
        """The run itself if it has a record, otherwise its `holder`."""
        run: LangChainRun | None = self
        while run is not None and run.work is None:
            run = run.parent
        return run


class RunTree:
    """The open runs.

    A run is removed when it ends, or when a run that contains it ends. If a run of a tool or model
    has no parent and is cancelled, LangChain calls no hook. Such a run is removed when its asyncio
    task is done.
    """

    def __init__(self, tracing: Tracing) -> None:
        """Create an empty tree.

        Args:
            tracing: The connection that records the runs.
        """
        self.lock = threading.RLock()
        """A lock that callers must hold when they call any method except `current`."""
        self._tracing = tracing
        self._runs: dict[UUID, LangChainRun] = {}
        self._choices: dict[UUID, Choices] = {}
        self._ended: dict[UUID, LangChainRun] = {}
        self._tasks: WeakKeyDictionary[asyncio.Task[Any], dict[UUID, bool]] = WeakKeyDictionary()
        _trees.add(self)

    def __len__(self) -> int:
        """Return the number of open runs."""
        return len(self._runs)

    def current(self) -> Work | None:
        """Return the innermost record that contains the calling code, such as a tool call.

        LangChain's own context identifies the LangChain run that is executing. If neither this run
        nor a run around it is recorded, return None.
        """
        callbacks = (var_child_runnable_config.get() or {}).get("callbacks")
        run_id = getattr(callbacks, "parent_run_id", None)
        run = self._find(run_id)
        recorded = run.recorded if run else None
        return recorded.work if recorded else None

    def begin(
        self,
        run_id: UUID,
        parent_run_id: UUID | None,
        serialized: dict[str, Any] | None,
        about: dict[str, Any],
    ) -> LangChainRun:
        """Add a run and return it.

        Args:
            run_id: LangChain's id of the run.
            parent_run_id: LangChain's id of the run that contains it.
            serialized: LangChain's description of the object that runs.
            about: The other arguments of LangChain's callback.
        """
        parent = self._find(parent_run_id)
        name = about.get("name") or (serialized or {}).get("name")
        self._runs[run_id] = run = LangChainRun(run_id, parent, name, about)
        if parent is None:
            self._forget_choices()
        elif parent.run_id in self._runs:
            parent.children[run_id] = run
        return run

    def watch(
        self, run: LangChainRun, task: asyncio.Task[Any] | None, may_go_on: bool = False
    ) -> None:
        """Watch the asyncio task of a run without a parent.

        If the run is still open when the task is done, the run is recorded as cancelled.

        Args:
            run: The run.
            task: The asyncio task in which the run began; None if the run began outside a task.
            may_go_on: Whether the run may continue in another task, as a stream may. If so, the run
                is recorded as cancelled only if the task fails or is cancelled.
        """
        if task is None or (run.parent is not None and run.parent.run_id in self._runs):
            return
        if task not in self._tasks:
            self._tasks[task] = {}
            task.add_done_callback(self._task_done)
        run.task_runs = self._tasks[task]
        run.task_runs[run.run_id] = may_go_on

    def end(self, run_id: UUID) -> LangChainRun | None:
        """Remove a run and return it; None if it is unknown.

        Open runs inside it are recorded as cancelled. If a graph is cancelled, LangChain calls a
        hook only for the graph, not for the tools, models and nodes inside the graph.
        """
        run = self._runs.pop(run_id, None)
        if run is None:
            return None
        if run.parent is not None:
            run.parent.children.pop(run_id, None)
        if run.task_runs is not None:
            run.task_runs.pop(run_id, None)
        for child in [*run.children.values()]:
            self._cancel(child.run_id)
        if isinstance(run.work, Plan):
            self._choices.pop(run.work.own_step.step_id, None)
        run.inputs = None
        if not isinstance(run.work, ThinkAct):
            self._ended[run_id] = run
        if len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]
        return run

    def within(self, run: LangChainRun) -> Work | None:
        """Return the innermost record that contains a run.

        If no record contains the run, but a chain does, the outermost chain becomes a plan. If
        nothing contains the run, return None.
        """
        holder = run.holder
        parent_work = innermost_of(holder.work if holder else None, current_work(self._tracing))
        if parent_work is None and run.parent is not None:
            top = run.parent
            while top.parent is not None:
                top = top.parent
            return self.start_plan(top)
        return parent_work

    def start_plan(self, run: LangChainRun) -> Plan:
        """Start a plan for a run and return it."""
        data = run.metadata
        session_id = next((str(data[each]) for each in _SESSIONS if data.get(each)), None)
        plan = self._tracing.plan(
            request=request_in(run.inputs),
            agent=run.name,
            session_id=session_id,
            subject=text_of(data.get("user_id")),
            tags=run.tags if run.parent is None else (),
            metadata=_own_metadata(data),
            within=self.within(run),
        )
        plan.start()
        _ = plan.own_step  # an agent is a plan of one step, even if it does nothing
        run.work = plan
        return plan

    def work_of(self, run_id: UUID) -> Work | None:
        """Return the record of an open run; None if the run is not open or has no record."""
        run = self._runs.get(run_id)
        return None if run is None else run.work

    def note_graph(self, run: LangChainRun) -> None:
        """Note that a run is a graph, and start a plan for the graph.

        A graph that is a node of another graph gets a plan only if it has an agent's name.
        """
        if run.is_graph:
            return
        run.is_graph = True
        holder = run.holder
        is_part = holder is not None and holder.is_graph
        if run.work is None and (not is_part or run.metadata.get("lc_agent_name") == run.name):
            self.start_plan(run)

    def choices(self, step: Step) -> Choices:
        """Return the calls that models chose in a step."""
        return self._choices.setdefault(step.step_id, Choices(step))

    def end_answered(self, run_id: UUID, messages: list[BaseMessage]) -> None:
        """End the calls that the agent answered without running a tool.

        Args:
            run_id: The id of the run with the messages: a model's run that receives them, or a
                graph's run that ends with them.
            messages: The messages, which contain the agent's answers to the calls.
        """
        run = self._runs.get(run_id)
        if run is not None and isinstance(run.work, (Plan, ThinkAct)):
            step = run.work.own_step if isinstance(run.work, Plan) else run.work.step
            self.choices(step).end_answered(messages)

    def _forget_choices(self) -> None:
        """Remove the chosen calls of plans that have ended and were not recorded by this adapter.

        LangChain calls no hook when such a plan ends.
        """
        for step_id, choices in [*self._choices.items()]:
            if choices.step.plan.has_ended:
                del self._choices[step_id]

    def _find(self, run_id: UUID | None) -> LangChainRun | None:
        if run_id is None:
            return None
        return self._runs.get(run_id) or self._ended.get(run_id)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        with log_errors("langchain task"), self.lock:
            went_well = not task.cancelled() and task.exception() is None
            for run_id, may_go_on in [*self._tasks.pop(task, {}).items()]:
                if not (may_go_on and went_well):
                    self._cancel(run_id)

    def _cancel(self, run_id: UUID) -> None:
        run = self.end(run_id)
        if run is not None and run.work is not None:
            run.work.cancel()


_trees: WeakSet[RunTree] = WeakSet()


_OF_FRAMEWORK = ("ls_", "lc_", "langgraph_", "checkpoint_", "__")


def _own_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metadata of a run without the entries that LangChain and LangGraph add."""
    return {
        name: value
        for name, value in metadata.items()
        if not name.startswith(_OF_FRAMEWORK) and name not in _ELSEWHERE
    }


_ELSEWHERE = (*_SESSIONS, "user_id")
"""Metadata that is recorded as the session or the subject of the run."""


def _unlock_all() -> None:
    for tree in list(_trees):
        tree.lock = threading.RLock()


# Another thread may hold the lock during a fork, and does not exist in the forked process.
os.register_at_fork(after_in_child=_unlock_all)
