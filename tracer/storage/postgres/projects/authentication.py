"""Who a secret belongs to: asked of the database, and known for a moment.

This stands above projects, so it asks as the owner: what a caller shows says which project it is.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from functools import partial
from typing import Any, Literal

from tracer.clock import Clock, utc_now
from tracer.errors import NotAllowed, NotIdentified, StoreUnavailable
from tracer.logs import get_logger
from tracer.records.access import Caller, Scope, digest, new_key, new_secret
from tracer.records.ids import DEFAULT_PROJECT, DEFAULT_PROJECT_ID
from tracer.storage.postgres.connection.pool import Pool, borrowed, store_errors
from tracer.storage.postgres.projects.single_flight import AskedTogether

KNOWN_SECONDS = 2.0
"""How long a server goes by what it knows of a key: a revoked one opens nothing after that."""

MOST_KNOWN = 10_000
"""How many secrets are known at once, wrong ones included."""

SIGNED_IN = timedelta(days=7)
"""How long a browser stays signed in."""

USED_AGAIN = timedelta(minutes=1)
"""How much later a key's use is worth writing down again."""

EVERYBODY = Caller(DEFAULT_PROJECT_ID, DEFAULT_PROJECT, frozenset({Scope.ADMIN}))
"""Who asks where no key was ever made."""

log = get_logger(__name__)


_Shown = tuple[Literal["key", "sign-in"], bytes]
"""A secret's kind and digest. A cache by digest alone would accept a key as a cookie."""


class Callers:
    """Finds out who asks."""

    def __init__(
        self, pool: Pool, clock: Clock = utc_now, known_seconds: float = KNOWN_SECONDS
    ) -> None:
        self._pool = pool
        self._clock = clock
        self._known_seconds = known_seconds
        self._known: dict[_Shown, tuple[float, Caller | None]] = {}
        self._own: dict[bytes, Caller] = {}
        self._keys_needed: tuple[float, bool] = (0, False)
        self._keys_asked = AskedTogether[bool]()
        self._callers_asked = AskedTogether[Caller | None]()

    async def are_keys_needed(self) -> bool:
        """Return whether a key was ever made: from then on everybody has to show one.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        until, are_needed = self._keys_needed
        if not are_needed and time.monotonic() >= until:
            return await self._keys_asked.answer("keys", self._find_whether_keys_are_needed)
        return are_needed

    def own_key(self, caller: Caller) -> str:
        """Return a key that this process alone knows, for what it runs itself."""
        secret = new_key()
        self._own[digest(secret)] = caller
        return secret

    async def by_key(self, key: str) -> Caller:
        """Return who shows a key.

        Raises:
            NotIdentified: It is no key, or was revoked.
            StoreUnavailable: The database does not answer.
        """
        shown = digest(key)
        own = self._own.get(shown)
        return own or await self._caller(("key", shown), self._find_by_key)

    async def by_sign_in(self, secret: str) -> Caller:
        """Return who signed in.

        Raises:
            NotIdentified: Nobody did with that, or it is over.
            StoreUnavailable: The database does not answer.
        """
        return await self._caller(("sign-in", digest(secret)), self._find_by_sign_in)

    async def sign_in(self, key: str) -> tuple[str, Caller]:
        """Return a secret that stands for a key in one browser, and who showed the key.

        Raises:
            NotIdentified: It is no key, or was revoked.
            NotAllowed: It allows nobody to look.
            StoreUnavailable: The database does not answer.
        """
        caller = await self.by_key(key)
        if caller.key_id is None or not caller.may(Scope.READ):
            raise NotAllowed("This key can't be used to look. Take one with the scope `read`.")
        secret, now = new_secret(), self._clock()
        with store_errors():
            async with borrowed(self._pool) as connection:
                await connection.execute("DELETE FROM sign_in WHERE expires_at <= %s", [now])
                await connection.execute(
                    "INSERT INTO sign_in (digest, key_id, expires_at) VALUES (%s, %s, %s)",
                    [digest(secret), caller.key_id, now + SIGNED_IN],
                )
        return secret, caller

    async def sign_out(self, secret: str) -> None:
        """Make what a browser holds worthless.

        Raises:
            StoreUnavailable: The database does not answer.
        """
        with store_errors():
            async with borrowed(self._pool) as connection:
                await connection.execute("DELETE FROM sign_in WHERE digest = %s", [digest(secret)])
        self._known.pop(("sign-in", digest(secret)), None)
        self._callers_asked.forget()

    def forget(self) -> None:
        """Clear the cache, because a key was revoked here."""
        self._known.clear()
        self._callers_asked.forget()

    async def _caller(
        self, shown: _Shown, find: Callable[[bytes], Awaitable[Caller | None]]
    ) -> Caller:
        until, caller = self._known.get(shown, (0.0, None))
        if time.monotonic() >= until:
            caller = await self._callers_asked.answer(shown, partial(self._found, shown, find))
        if caller is None:
            raise NotIdentified()
        return caller

    async def _found(
        self, shown: _Shown, find: Callable[[bytes], Awaitable[Caller | None]]
    ) -> Caller | None:
        self._known.pop(shown, None)
        while len(self._known) >= MOST_KNOWN:
            del self._known[next(iter(self._known))]
        # An expired entry marks the lookup. If `sign_out` or `forget` removes it meanwhile, the
        # answer may be out of date and must not be cached.
        mark = self._known[shown] = (time.monotonic(), None)
        caller = await find(shown[1])
        if self._known.get(shown) is mark:
            self._known[shown] = (time.monotonic() + self._known_seconds, caller)
        return caller

    async def _find_whether_keys_are_needed(self) -> bool:
        with store_errors():
            async with borrowed(self._pool) as connection:
                cursor = await connection.execute("SELECT EXISTS (SELECT FROM api_key)")
                [(are_needed,)] = await cursor.fetchall()
        self._keys_needed = (time.monotonic() + self._known_seconds, are_needed)
        return bool(are_needed)

    async def _find_by_key(self, shown: bytes) -> Caller | None:
        row = await self._find(_BY_KEY, [shown])
        if row is None:
            return None
        *caller, last_used_at = row
        found = _caller_of(caller)
        now = self._clock()
        if last_used_at is None or now - last_used_at >= USED_AGAIN:
            await self._note_use(found, now)
        return found

    async def _find_by_sign_in(self, shown: bytes) -> Caller | None:
        row = await self._find(_BY_SIGN_IN, [shown, self._clock()])
        return None if row is None else _caller_of(row)

    async def _find(self, query: str, given: list[Any]) -> Any:
        with store_errors():
            async with borrowed(self._pool) as connection:
                cursor = await connection.execute(query, given)
                return await cursor.fetchone()

    async def _note_use(self, caller: Caller, now: Any) -> None:
        given = [now, caller.key_id, now - USED_AGAIN]
        try:
            with store_errors():
                async with borrowed(self._pool) as connection:
                    await connection.execute(_NOTE_USE, given)
        except StoreUnavailable:  # a standby, which may be read
            log.info("use_of_key_not_noted")


def _caller_of(row: Any) -> Caller:
    project_id, project, scopes, key_id, key_name = row
    return Caller(project_id, project, frozenset(Scope(each) for each in scopes), key_id, key_name)


_CALLER = "api_key.project_id, project.name, api_key.scopes, api_key.key_id, api_key.name"

_BY_KEY = f"""
SELECT {_CALLER}, api_key.last_used_at FROM api_key JOIN project USING (project_id)
WHERE api_key.digest = %s AND api_key.revoked_at IS NULL"""

_BY_SIGN_IN = f"""
SELECT {_CALLER} FROM sign_in JOIN api_key USING (key_id) JOIN project USING (project_id)
WHERE sign_in.digest = %s AND sign_in.expires_at > %s AND api_key.revoked_at IS NULL"""

_NOTE_USE = """
UPDATE api_key SET last_used_at = %s
WHERE key_id = %s AND (last_used_at IS NULL OR last_used_at <= %s)"""
