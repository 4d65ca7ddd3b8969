r"""Fills in the `{placeholders}` of an agent's instructions when a run starts.

A placeholder is a key of the conversation's state, or one of `user_id`, `user_info`, `session_id`
and `current_date`. It may be written `{name}` or `{{name}}`. Unknown names and other braces are
left unchanged.

`current_date` is the date in the time zone of the caller (`User.time_zone`), or, if it is unknown,
of the application (`Application.time_zone`).

A backslash escapes a known placeholder: `\{current_date}` becomes `{current_date}`. A backslash
before anything else is left unchanged.
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
from tracer.tools.call.active_run import ActiveRun
from tracer.tools.definition.results import result_text

log = get_logger(__name__)

_PLACEHOLDER = re.compile(r"(\\?)(?:\{\{(\w+)\}\}|\{(\w+)\})")

CALLER_PLACEHOLDERS = frozenset({"user_id", "user_info"})
"""Placeholders that show the caller's identity to the model. In the values of all other
placeholders, such as session state, the caller's identity is masked."""

_BUILT_IN = CALLER_PLACEHOLDERS | {"session_id", "current_date"}


class Instructions:
    """Fills in the instructions of the agents of one run."""

    def __init__(
        self,
        run: ActiveRun,
        clock: Clock = utc_now,
        every_text: Iterable[str] = (),
        zone: tzinfo = UTC,
    ) -> None:
        """Prepare for a run, without reading anything yet.

        Args:
            run: The run.
            clock: The source of the current date.
            every_text: The instructions of all agents of the run.
            zone: The time zone of the date, if the caller has none.
        """
        self._run = run
        self._clock = clock
        self._every_text = every_text
        self._zone = zone
        self._has_started = False
        self._state: State | None = None

    async def filled(self, text: str) -> str:
        """Return instructions with all placeholders filled in.

        Session state is read once, when the run starts. Later changes by tools do not appear.

        Raises:
            MissingIdentity: The instructions have a placeholder for the caller, and the run has no
                caller.
            ToolError: The state cannot be read.
        """
        if not self._has_started:
            self._has_started = True
            if any(_names(each) - _BUILT_IN for each in self._every_text):
                # Also for agents that run later. An error is raised when an agent needs the state.
                with suppress(ToolError):
                    self._state = await self._run.state()
        if not _PLACEHOLDER.search(text):
            return text
        names = _names(text)
        values = await self._values(names)
        secrets = self._run.secrets()  # after `_values`, which may have resolved the user

        def value(match: re.Match[str]) -> str:
            escape, name = match[1], match[2] or match[3]
            if escape and (name in values or name in _BUILT_IN):
                return match[0].removeprefix(escape)
            if escape or name not in values:
                return match[0]
            text = values[name] if isinstance(values[name], str) else result_text(values[name])
            return text if name in CALLER_PLACEHOLDERS else secrets.scrub(text)

        return _PLACEHOLDER.sub(value, text)

    async def _values(self, names: set[str]) -> dict[str, Any]:
        run = self._run
        values: dict[str, Any] = {}
        if "current_date" in names:
            now = self._clock().astimezone(await self._zone_of_run())
            values["current_date"] = now.date().isoformat()
        if run.session_id is not None:
            values["session_id"] = run.session_id
        if names & CALLER_PLACEHOLDERS:
            user = await run.user()
            values["user_id"] = user.user_id
            values["user_info"] = dict(user.info)
        if names - values.keys():
            if self._state is None:
                self._state = await run.state()
            values = {**self._state, **values}
        return values

    async def _zone_of_run(self) -> tzinfo:
        """Return the caller's time zone if it is known, otherwise the application's."""
        if self._run.identity is None:
            return self._zone
        try:
            name = (await self._run.user()).time_zone
            return self._zone if name is None else time_zone(name)
        except (MissingIdentity, IdentityUnavailable):
            return self._zone  # a date alone does not require a caller
        except ValueError:
            # The name is not logged: it describes the caller.
            log.warning("time_zone_unknown", used=str(self._zone))
            return self._zone


def _names(text: str) -> set[str]:
    """Return the names whose values are needed to fill in a text.

    An escaped name is omitted if it is a built-in placeholder. Other escaped names are included,
    because only the session state shows whether they are placeholders.
    """
    matches = ((escape, one or other) for escape, one, other in _PLACEHOLDER.findall(text))
    return {name for escape, name in matches if not escape or name not in _BUILT_IN}


def without_placeholders(text: str) -> str:
    """Return instructions with `…` for each placeholder; escaped placeholders are unchanged."""
    return _PLACEHOLDER.sub(lambda match: match[0] if match[1] else "…", text)
