r"""Fills in the `{placeholders}` of an agent's instructions when a run begins.

A placeholder is a key of the conversation's state, or one of `user_id`, `user_info`, `session_id`
and `current_date`. It may be written `{name}` or `{{name}}`. Unknown names and other braces are
left as they are.

`current_date` is the date in the time zone of the caller (`User.time_zone`), or else of the
application (`Application.time_zone`).

A backslash escapes a known placeholder: `\{current_date}` becomes `{current_date}`. A backslash
before anything else is left as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, tzinfo
from typing import Any

from tracer.clock import Clock, time_zone, utc_now
from tracer.errors import IdentityUnavailable, MissingIdentity, ToolError
from tracer.logs import get_logger
from tracer.records.sessions import State
from tracer.tools.call.active_run import RunScope
from tracer.tools.definition.results import result_text

log = get_logger(__name__)

_PLACEHOLDER = re.compile(r"(\\?)(?:\{\{(\w+)\}\}|\{(\w+)\})")

OF_THE_CALLER = frozenset({"user_id", "user_info"})
"""Placeholders that show a model who the caller is, which instructions alone may decide."""

_BUILT_IN = OF_THE_CALLER | {"session_id", "current_date"}


class Instructions:
    """Fills in the instructions of one run's agents."""

    def __init__(
        self,
        scope: RunScope,
        clock: Clock = utc_now,
        every_text: Iterable[str] = (),
        zone: tzinfo = UTC,
    ) -> None:
        """Fill in nothing yet.

        Args:
            scope: The run.
            clock: Tells the date.
            every_text: The instructions of all its agents.
            zone: The time zone of the date, unless the caller has one.
        """
        self._scope = scope
        self._clock = clock
        self._every_text = every_text
        self._zone = zone
        self._has_begun = False
        self._state: State | None = None

    async def filled(self, text: str) -> str:
        """Return instructions with their placeholders filled in, all at once.

        The state is that of the run's beginning, whatever tools have changed since.

        Raises:
            MissingIdentity: They speak of the caller, and nobody said who that is.
            ToolError: The state cannot be read.
        """
        if not self._has_begun:
            self._has_begun = True
            if any(_names(each) - _BUILT_IN for each in self._every_text):
                # For the agents whose turn comes later. The first that needs the state reports
                # why it cannot be read.
                with suppress(ToolError):
                    self._state = await self._scope.state()
        if not _PLACEHOLDER.search(text):
            return text
        names = _names(text)
        known = await self._known(names)
        secrets = self._scope.secrets()  # whom a state belongs to is known once it has been read

        def value(found: re.Match[str]) -> str:
            escape, name = found[1], found[2] or found[3]
            if escape and (name in known or name in _BUILT_IN):
                return found[0].removeprefix(escape)
            if escape or name not in known:
                return found[0]
            words = known[name] if isinstance(known[name], str) else result_text(known[name])
            return words if name in OF_THE_CALLER else secrets.scrub(words)

        return _PLACEHOLDER.sub(value, text)

    async def _known(self, names: set[str]) -> dict[str, Any]:
        scope = self._scope
        known: dict[str, Any] = {}
        if "current_date" in names:
            now = self._clock().astimezone(await self._zone_of_run())
            known["current_date"] = now.date().isoformat()
        if scope.session_id is not None:
            known["session_id"] = scope.session_id
        if names & OF_THE_CALLER:
            user = await scope.user()
            known["user_id"] = user.user_id
            known["user_info"] = dict(user.info)
        if names - known.keys():
            if self._state is None:
                self._state = await scope.state()
            known = {**self._state, **known}
        return known

    async def _zone_of_run(self) -> tzinfo:
        """Return the caller's time zone if it is known, or else the application's."""
        if self._scope.identity is None:
            return self._zone
        try:
            name = (await self._scope.user()).time_zone
            return self._zone if name is None else time_zone(name)
        except (MissingIdentity, IdentityUnavailable):
            return self._zone  # the date alone requires no caller
        except ValueError:
            # The name is not logged: it describes the caller.
            log.warning("time_zone_unknown", used=str(self._zone))
            return self._zone


def _names(text: str) -> set[str]:
    """Return the names whose values are needed to fill in a text.

    An escaped name of the state is one of them: only the state shows whether it is known.
    """
    found = ((escape, one or other) for escape, one, other in _PLACEHOLDER.findall(text))
    return {name for escape, name in found if not escape or name not in _BUILT_IN}


def without_placeholders(text: str) -> str:
    """Return instructions with `…` for each placeholder; escaped ones are left as they are."""
    return _PLACEHOLDER.sub(lambda found: found[0] if found[1] else "…", text)
