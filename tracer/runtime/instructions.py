"""An agent's instructions, with `{placeholders}` for what is known when the run begins.

A placeholder is the name of something in the conversation's state, or one of `user_id`,
`user_info`, `session_id` and `current_date`. It may be written `{name}` or `{{name}}`. What is not
known by that name stays as it is, and so do braces that mean something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from tracer.clock import Clock, utc_now
from tracer.errors import ToolError
from tracer.sessions import State
from tracer.tools.results import result_text
from tracer.tools.run_scope import RunScope

_PLACEHOLDER = re.compile(r"\{\{(\w+)\}\}|\{(\w+)\}")

OF_THE_CALLER = frozenset({"user_id", "user_info"})
"""Placeholders that show a model who the caller is, which instructions alone may decide."""


class Instructions:
    """Fills in the instructions of one run's agents."""

    def __init__(
        self, scope: RunScope, clock: Clock = utc_now, every_text: Iterable[str] = ()
    ) -> None:
        """Fill in nothing yet.

        Args:
            scope: The run.
            clock: Tells the date.
            every_text: The instructions of all its agents.
        """
        self._scope = scope
        self._clock = clock
        self._every_text = every_text
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
            await self._begin()
        names = _names(text)
        if not names:
            return text
        known = await self._known(names)
        secrets = self._scope.secrets()  # whom a state belongs to is known once it has been read

        def value(found: re.Match[str]) -> str:
            name = found[1] or found[2]
            if name not in known:
                return found[0]
            words = known[name] if isinstance(known[name], str) else result_text(known[name])
            return words if name in OF_THE_CALLER else secrets.scrub(words)

        return _PLACEHOLDER.sub(value, text)

    async def _begin(self) -> None:
        """Read the state as the run finds it, for the agents whose turn comes later.

        Where it cannot be read, the first that needs it tells.
        """
        names = {name for text in self._every_text for name in _names(text)}
        if names - OF_THE_CALLER - {"session_id", "current_date"}:
            with suppress(ToolError):
                self._state = await self._scope.state()

    async def _known(self, names: set[str]) -> dict[str, Any]:
        scope = self._scope
        known: dict[str, Any] = {"current_date": self._clock().date().isoformat()}
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


def _names(text: str) -> set[str]:
    return {one or other for one, other in _PLACEHOLDER.findall(text)}


def without_placeholders(text: str) -> str:
    """Return instructions with `…` where something is to be filled in."""
    return _PLACEHOLDER.sub("…", text)
