"""Which round chose a tool call: by the call's id, else by name and arguments, else by time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from tracer.otel.dialects.reading import Chosen, Role
from tracer.otel.forest import Above, Forest
from tracer.otel.texts import canonical, strings_in

LATEST_ROUND = "the agent's latest round before the call"


@dataclass(frozen=True, slots=True)
class Choice:
    """The round that a tool call belongs to."""

    model: bytes
    asked: Chosen | None = None
    """What the model asked for, where that is certain."""
    inferred: bool = False


_Asked = tuple[bytes, Chosen | None]


class _Timeline:
    """What was asked for, in the order of the rounds."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._asked: list[_Asked] = []

    def append(self, start: int, asked: _Asked) -> None:
        self._starts.append(start)
        self._asked.append(asked)

    def latest(self, start: int) -> Choice | None:
        """Return the latest round that began by then; what it asked, where that was one thing."""
        at = bisect_right(self._starts, start)
        return self._choice(at - 1) if at else None

    def earliest(self) -> Choice:
        """Return the first round: for calls that seem to begin before the round that chose them."""
        return self._choice(0)

    def _choice(self, at: int) -> Choice:
        model, asked = self._asked[at]
        neighbours = (
            self._asked[near][0] for near in (at - 1, at + 1) if 0 <= near < len(self._asked)
        )
        return Choice(model, None if model in neighbours else asked)


class Rounds:
    """One agent's rounds, and what each asked for."""

    def __init__(self, forest: Forest, models: Iterable[bytes]) -> None:
        """Index the rounds.

        Args:
            forest: The spans.
            models: The rounds' spans by time.
        """
        self._forest = forest
        self._all = _Timeline()
        self._by: dict[tuple[object, ...], _Timeline] = {}
        for model in models:
            if not _is_within_tool(forest, model):
                start = forest.spans[model].start
                self._all.append(start, (model, None))
                for asked in forest.readings[model].chosen:
                    for key in _keys(asked):
                        self._by.setdefault(key, _Timeline()).append(start, (model, asked))

    def choice(self, call: bytes) -> Choice | None:
        """Return the round that chose a call; None where the agent had none before it.

        Ids repeat from round to round and collide within one: a round that asked for the same
        arguments under the id goes first, then the latest that had begun before the call.
        """
        reading = self._forest.readings[call]
        start = self._forest.spans[call].start
        given = canonical(reading.arguments)
        keys: list[tuple[object, ...]] = []
        if reading.call_id:
            keys.append(("exact", reading.call_id, reading.name, given))
            keys.append(("id", reading.call_id, reading.name))
            keys.append(("id", reading.call_id, None))
        if given is not None:
            keys.append(("arguments", reading.name, given))
            # A bare value: some emitters leave out the name of a tool's only parameter.
            keys.append(("bare", reading.name, (reading.arguments or "").strip()))
        for key in keys:
            timeline = self._by.get(key)
            if timeline is not None:
                return timeline.latest(start) or timeline.earliest()
        above, at = self._forest.places[call]
        if above is Above.SPAN and self._forest.role(at) is Role.MODEL:
            return Choice(at)
        latest = self._all.latest(start)
        return Choice(latest.model, inferred=True) if latest is not None else None


def _keys(asked: Chosen) -> Iterable[tuple[object, ...]]:
    given = canonical(asked.arguments)
    if asked.call_id:
        yield "exact", asked.call_id, asked.name, given
        yield "id", asked.call_id, asked.name
    if given is not None:
        yield "arguments", asked.name, given
        strings = strings_in(asked.arguments)
        if len(strings) == 1:
            yield "bare", asked.name, next(iter(strings))


def _is_within_tool(forest: Forest, model: bytes) -> bool:
    """Return whether a tool asked the model for itself: it chooses none of the agent's calls."""
    above, at = forest.places[model]
    return above is Above.SPAN and forest.role(at) is Role.TOOL
