"""Which of the calls that models chose a tool that starts is, within one step."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple
from uuid import UUID

from langchain_core.messages import BaseMessage

from tracer.adapters.langchain.messages import Told, answered_in
from tracer.client.block import text_of
from tracer.client.work import Step, ToolCall
from tracer.otel.dialects.texts import same_arguments
from tracer.records.status import Reason

Path = tuple[UUID, ...]


class _Round(NamedTuple):
    path: Path
    """The runs that the model's was in, and its own."""
    calls: list[ToolCall]
    message_id: str | None

    @property
    def waiting(self) -> list[ToolCall]:
        return [each for each in self.calls if not each.has_started and not each.has_ended]


class Choices:
    """The calls that the models of one step chose, and that have not ended well."""

    def __init__(self, step: Step) -> None:
        """Begin with none.

        Args:
            step: What they belong to.
        """
        self.step = step
        self._rounds: list[_Round] = []
        self._failed: list[tuple[object, ToolCall]] = []

    def add(self, path: Path, calls: list[ToolCall], message_id: str | None) -> None:
        """Add what a model chose.

        Args:
            path: The runs that the model's was in, and its own.
            calls: The calls, pending.
            message_id: The id of its answer.
        """
        self._rounds = [each for each in self._rounds if each.waiting]
        if calls:
            self._rounds.append(_Round(path, calls, message_id))

    def take(
        self,
        name: str,
        arguments: str | None,
        call_id: str | None,
        path: Path,
        place: object,
        within: UUID | None,
    ) -> ToolCall | None:
        """Return the call that a tool is started for; None where no model chose it.

        Of several rounds, the one that shares most of the runs around it is asked first, then the
        latest: provider's ids repeat. A call that failed at the same place is tried again.

        Args:
            name: The tool's name.
            arguments: What it is given.
            call_id: The provider's id of the call, if it is known.
            path: The runs that the tool's is in, and its own.
            place: What stays the same when it is tried again.
            within: The run that the model's has to be in, too.
        """
        rounds = sorted(
            (each for each in self._rounds if within is None or within in each.path),
            key=lambda each: _shared(each.path, path),
        )
        named = [[call for call in each.waiting if call.name == name] for each in rounds[::-1]]
        for calls in named:
            if call_id is not None:
                calls = [call for call in calls if call.provider_call_id == call_id]
            alike = [call for call in calls if same_arguments(call.arguments, arguments)]
            if found := alike or (calls if call_id is not None else []):
                return found[0]
        sole = [call for calls in named for call in calls]
        if call_id is None and len(sole) == 1:
            return sole[0]
        return self._again(name, arguments, call_id, place)

    def _again(
        self, name: str, arguments: str | None, call_id: str | None, place: object
    ) -> ToolCall | None:
        for failure in self._failed:
            at, call = failure
            wanted = (place, name, call_id)
            is_it = (at, call.name, call.provider_call_id) == wanted and place is not None
            if is_it and same_arguments(call.arguments, arguments):
                self._failed.remove(failure)
                call.attempt += 1
                call.has_ended = False
                return call
        return None

    def failed(self, call: ToolCall, place: object) -> None:
        """Note that a call failed, which may be tried again.

        Args:
            call: The call.
            place: Where: what stays the same when it is tried again.
        """
        self._failed.append((place, call))

    def settle(self, messages: Sequence[BaseMessage]) -> None:
        """End the calls that were answered without a tool's run: of what the agent does not have.

        Args:
            messages: What a model is given next, or what the agent ends with.
        """
        message_id, told = answered_in(messages)
        rounds = [each for each in self._rounds if message_id in (None, each.message_id)]
        if not told or not rounds:
            return
        run = [call for call in rounds[-1].calls if call.has_started]
        for answer in told:
            if (call := _answered(run, answer)) is not None:
                run.remove(call)
            elif (call := _answered(rounds[-1].waiting, answer)) is not None:
                _end(call, answer)


def _shared(path: Path, other: Path) -> int:
    return sum(
        1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(path, other, strict=False))
    )


def _answered(calls: list[ToolCall], answer: Told) -> ToolCall | None:
    return next(
        (
            call
            for call in calls
            if call.provider_call_id == answer.call_id and answer.name in (None, call.name)
        ),
        None,
    )


def _end(call: ToolCall, answer: Told) -> None:
    if not answer.is_error:
        call.start()
        call.finish(answer.result)
        return
    text = text_of(answer.result) or ""
    is_unknown = text.startswith(f"Error: {call.name} is not a valid tool")  # LangGraph's words
    call.fail(text, Reason.UNKNOWN_TOOL if is_unknown else None)
