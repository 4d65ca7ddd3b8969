"""Match each starting tool to the tool call that a model requested in the same step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple
from uuid import UUID

from langchain_core.messages import BaseMessage

from tracer.adapters.langchain.messages import ToolReply, answered_in
from tracer.client.block import text_of
from tracer.client.work import Step, ToolCall
from tracer.records.arguments import same_arguments
from tracer.records.status import Reason

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
        place: object,
        containing_run: UUID | None,
    ) -> ToolCall | None:
        """Return the requested call that a starting tool executes; None if no model requested it.

        The provider's call id alone does not identify a call, because such ids repeat. So the
        model answers that are nearest to the tool are searched first. The nearest answer shares the
        most enclosing runs with the tool; among equals, it is the latest.

        If no call matches, the tool may be a retry. Then the call is the failed call that has the
        same `place`, name, id and arguments.

        Args:
            name: The tool's name.
            arguments: The tool's arguments.
            call_id: The provider's id of the call, if it is known.
            path: The ids of the runs that contain the tool's run, the outermost first, and then the
                id of the tool's run.
            place: A value that is the same for the first attempt and its retries.
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
                return self._retried(name, arguments, call_id, place) or calls[0]
        unstarted = [call for calls in named for call in calls]
        if call_id is None and len(unstarted) == 1:
            return unstarted[0]
        return self._retried(name, arguments, call_id, place)

    def _retried(
        self, name: str, arguments: str | None, call_id: str | None, place: object
    ) -> ToolCall | None:
        for failure in self._failed:
            failed_place, call = failure
            is_same = (failed_place, call.name, call.provider_call_id) == (place, name, call_id)
            if place is not None and is_same and same_arguments(call.arguments, arguments):
                self._failed.remove(failure)
                call.attempt += 1
                call.has_ended = False
                return call
        return None

    def failed(self, call: ToolCall, place: object) -> None:
        """Note that a call failed, so that `take` can find it if the tool is retried.

        Args:
            call: The call.
            place: A value that is the same for the first attempt and its retries.
        """
        self._failed.append((place, call))

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
