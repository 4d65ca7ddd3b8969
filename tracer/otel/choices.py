"""Which round chose a tool call: by the call's id, else by name and arguments, else by time."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from tracer.otel.agents import within_tool
from tracer.otel.dialects.reading import Chosen, Role
from tracer.otel.forest import Above, Forest
from tracer.otel.texts import canonical, strings_in

LARGE_CHARACTERS = 2000
MOST_TOLD = 10
"""To how many calls large arguments are told that they were asked for once: each keeps them."""

LATEST_ROUND = "the agent's latest round before the call"


class Choice(NamedTuple):
    """The round that a tool call belongs to."""

    model: bytes
    asked: Chosen | None = None
    """What the model asked for, where that is certain."""
    inferred: bool = False


def needs_what_was_asked(arguments: str | None) -> bool:
    """Return whether a call's own arguments are none, or a bare value."""
    return arguments is None or arguments[:1] != "{"


class _Asked(NamedTuple):
    """One thing that a round asked for; lists have them in the order of the rounds."""

    start: int
    model: bytes
    chosen: Chosen


class Rounds:
    """One agent's rounds, and what each asked for."""

    def __init__(self, forest: Forest, models: Iterable[bytes]) -> None:
        """Index the rounds.

        Args:
            forest: The spans.
            models: The rounds' spans by time.
        """
        self._forest = forest
        self._models = [each for each in models if not within_tool(forest, each)]
        self._starts = [forest.spans[each].start for each in self._models]
        self._told = Counter[Choice]()
        self._by_id: dict[tuple[str, str | None], list[_Asked]] = {}
        for asked in self._all_asked():
            if asked.chosen.call_id:
                key = asked.chosen.call_id, asked.chosen.name
                self._by_id.setdefault(key, []).append(asked)

    def _all_asked(self) -> Iterable[_Asked]:
        for start, model in zip(self._starts, self._models, strict=True):
            for chosen in self._forest.readings[model].chosen:
                yield _Asked(start, model, chosen)

    def choice(self, call: bytes) -> Choice | None:
        """Return the round that chose a call; None where the agent had none before it.

        To be asked once for each call, by time: large arguments are told to the first ones only.
        """
        choice = self._choice(call)
        if choice is None or choice.asked is None:
            return choice
        asked = choice.asked
        if asked.arguments is None or len(asked.arguments) <= LARGE_CHARACTERS:
            return choice
        if not needs_what_was_asked(self._forest.readings[call].arguments):
            return choice
        self._told[choice] += 1
        if self._told[choice] <= MOST_TOLD:
            return choice
        return choice._replace(asked=asked._replace(arguments=None))

    def _choice(self, call: bytes) -> Choice | None:
        """Find the round that chose a call.

        Ids repeat from round to round and collide within one: a round that asked for the same
        arguments under the id goes first, then the latest that had begun before the call.
        """
        reading = self._forest.readings[call]
        start = self._forest.spans[call].start
        asking = self._asking_by_id(reading.call_id, reading.name, reading.arguments)
        if not asking and reading.arguments is not None:
            by_arguments, given = self._by_arguments, canonical(reading.arguments)
            # A bare value: some emitters leave out the name of a tool's only parameter.
            asking = by_arguments.get(("all", reading.name, given)) or by_arguments.get(
                ("bare", reading.name, reading.arguments.strip())
            )
        if asking:
            return _latest(asking, start)
        above, at = self._forest.places[call]
        if above is Above.SPAN and self._forest.role(at) is Role.MODEL:
            return Choice(at)
        latest = bisect_right(self._starts, start) - 1
        return Choice(self._models[latest], inferred=True) if latest >= 0 else None

    def _asking_by_id(
        self, call_id: str | None, name: str | None, arguments: str | None
    ) -> Sequence[_Asked] | None:
        if not call_id:
            return None
        asking = self._by_id.get((call_id, name))
        if asking is None:
            return self._by_id.get((call_id, None))
        if len(asking) == 1:
            return asking
        return self._by_id_and_arguments.get((call_id, name, canonical(arguments)), asking)

    @cached_property
    def _by_id_and_arguments(self) -> Mapping[Hashable, list[_Asked]]:
        """What was asked for under ids that were given more than once."""
        found: dict[Hashable, list[_Asked]] = {}
        for asking in self._by_id.values():
            if len(asking) > 1:
                for asked in asking:
                    call_id, name, arguments = asked.chosen
                    found.setdefault((call_id, name, canonical(arguments)), []).append(asked)
        return found

    @cached_property
    def _by_arguments(self) -> Mapping[Hashable, list[_Asked]]:
        """What was asked for by name and arguments. Only calls without a known id look here."""
        found: dict[Hashable, list[_Asked]] = {}
        for asked in self._all_asked():
            name, arguments = asked.chosen.name, asked.chosen.arguments
            if arguments is not None:
                found.setdefault(("all", name, canonical(arguments)), []).append(asked)
                strings = strings_in(arguments)
                if len(strings) == 1:
                    found.setdefault(("bare", name, next(iter(strings))), []).append(asked)
        return found


def _latest(asking: Sequence[_Asked], start: int) -> Choice:
    """Return the latest round that began by then, and what it asked for, where that was one thing.

    Without one it is the first: some calls seem to begin before the round that chose them.
    """
    if len(asking) == 1:
        return Choice(asking[0].model, asking[0].chosen)
    at = max(bisect_right(asking, start, key=lambda each: each.start) - 1, 0)
    model = asking[at].model
    is_one = all(
        asking[near].model != model for near in (at - 1, at + 1) if 0 <= near < len(asking)
    )
    return Choice(model, asking[at].chosen if is_one else None)
