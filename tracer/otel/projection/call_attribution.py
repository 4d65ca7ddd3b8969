"""Find the model call that chose a tool call: by call id, by name and arguments, or by time.

A *round* is one model call and the tool calls that it chose.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from tracer.otel.dialects.run_spans import SlimSpan
from tracer.otel.dialects.span_facts import RequestedCall, Role
from tracer.otel.projection.agents import is_within_tool
from tracer.records.arguments import canonical, strings_in

LARGE_CHARACTERS = 2000
MOST_COPIES = 10
"""The maximum number of tool calls that receive a copy of the same large arguments, if all of them
are attributed to one request in a model's answer."""


LATEST_ROUND = "the agent's latest round before the call"
"""The evidence if a tool call is attributed to a round whose answer may not contain the call."""


class Choice(NamedTuple):
    """The round that a tool call belongs to."""

    model: SlimSpan
    requested: RequestedCall | None = None
    """The request for the call in the model's answer; None if it is uncertain."""
    inferred: bool = False


def needs_requested(arguments: str | None) -> bool:
    """Return whether the arguments of a tool call's span are missing or no JSON object.

    If so, the arguments in the model's answer are used.
    """
    return arguments is None or arguments[:1] != "{"


class _RoundCall(NamedTuple):
    """One tool call that a model's answer requests."""

    start: int
    model: SlimSpan
    chosen: RequestedCall


class Rounds:
    """The rounds of one agent, with the tool calls that the model requested in each."""

    def __init__(self, models: Iterable[SlimSpan]) -> None:
        """Index the requested calls.

        Args:
            models: The spans of the agent's model calls, sorted.
        """
        self._models = [span for span in models if not is_within_tool(span)]
        self._starts = [span.start for span in self._models]
        self._copies = Counter[Choice]()
        self._by_id: dict[tuple[str, str | None], list[_RoundCall]] = {}
        for model in self._models:
            for chosen in model.facts.chosen:
                if chosen.call_id:
                    request = _RoundCall(model.start, model, chosen)
                    self._by_id.setdefault((chosen.call_id, chosen.name), []).append(request)

    def _requests(self) -> Iterable[_RoundCall]:
        for model in self._models:
            for chosen in model.facts.chosen:
                yield _RoundCall(model.start, model, chosen)

    def choice(self, call: SlimSpan) -> Choice | None:
        """Return the round that chose a tool call; None if no round began before the call.

        Call this method once for each tool call, in order. It counts the calls that receive a copy
        of the same large arguments, and limits their number.
        """
        choice = self._choice(call)
        if choice is None or choice.requested is None:
            return choice
        arguments = choice.requested.arguments
        is_large = arguments is not None and len(arguments) > LARGE_CHARACTERS
        if not is_large or not needs_requested(call.facts.arguments):
            return choice
        self._copies[choice] += 1
        if self._copies[choice] <= MOST_COPIES:
            return choice
        return choice._replace(requested=choice.requested._replace(arguments=None))

    def _choice(self, call: SlimSpan) -> Choice | None:
        """Find the round that chose a tool call.

        Providers reuse call ids in later rounds, and sometimes within one round. A round that
        requested the same id with the same arguments is therefore preferred. If several rounds
        match, the latest round that began before the call is returned.
        """
        facts = call.facts
        requests = self._requested_by_id(facts.call_id, facts.name, facts.arguments)
        if not requests and facts.arguments is not None:
            by_arguments, arguments = self._by_arguments, canonical(facts.arguments)
            # A bare value: some emitters leave out the name of a tool's only parameter.
            requests = by_arguments.get(("all", facts.name, arguments)) or by_arguments.get(
                ("bare", facts.name, facts.arguments.strip())
            )
        if requests:
            return _latest(requests, call.start)
        if call.above is not None and call.above.facts.role is Role.MODEL:
            return Choice(call.above)
        latest = bisect_right(self._starts, call.start) - 1
        return Choice(self._models[latest], inferred=True) if latest >= 0 else None

    def _requested_by_id(
        self, call_id: str | None, name: str | None, arguments: str | None
    ) -> Sequence[_RoundCall] | None:
        if not call_id:
            return None
        requests = self._by_id.get((call_id, name))
        if requests is None:
            return self._by_id.get((call_id, None))
        if len(requests) == 1:
            return requests
        return self._by_id_and_arguments.get((call_id, name, canonical(arguments)), requests)

    @cached_property
    def _by_id_and_arguments(self) -> Mapping[Hashable, list[_RoundCall]]:
        """The requested calls whose id occurs more than once, by id, name and arguments."""
        requests_by_key: dict[Hashable, list[_RoundCall]] = {}
        for requests in self._by_id.values():
            if len(requests) > 1:
                for request in requests:
                    call_id, name, arguments = request.chosen
                    requests_by_key.setdefault((call_id, name, canonical(arguments)), []).append(
                        request
                    )
        return requests_by_key

    @cached_property
    def _by_arguments(self) -> Mapping[Hashable, list[_RoundCall]]:
        """The requested calls by name and arguments, for tool calls whose id is unknown."""
        requests_by_key: dict[Hashable, list[_RoundCall]] = {}
        for request in self._requests():
            _, name, arguments = request.chosen
            if arguments is not None:
                requests_by_key.setdefault(("all", name, canonical(arguments)), []).append(request)
                strings = strings_in(arguments)
                if len(strings) == 1:
                    requests_by_key.setdefault(("bare", name, next(iter(strings))), []).append(
                        request
                    )
        return requests_by_key


def _latest(requests: Sequence[_RoundCall], start: int) -> Choice:
    """Return the latest round that began by `start`; if none did, the first round.

    Some tool calls seem to begin before their round. The requested call is included only if the
    round has exactly one of the candidates.
    """
    if len(requests) == 1:
        return Choice(requests[0].model, requests[0].chosen)
    at = max(bisect_right(requests, start, key=lambda each: each.start) - 1, 0)
    model = requests[at].model
    is_one = all(
        requests[near].model is not model for near in (at - 1, at + 1) if 0 <= near < len(requests)
    )
    return Choice(model, requests[at].chosen if is_one else None)
