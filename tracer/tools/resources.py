"""The resources that the tools of a service share: sessions, instances, connections, limits."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tracer.errors import IdentityUnavailable, MissingIdentity
from tracer.logs import get_logger
from tracer.records.sessions import SessionStates
from tracer.storage.memory.sessions import MemorySessions
from tracer.tasks import GRACE_SECONDS
from tracer.tools.definition.hidden_parameters import Secrets, TokenResolver, User, token_is_user_id
from tracer.tools.executors.rest.http_clients import HttpClients
from tracer.tools.executors.stateful.thread_context import ThreadContextManager

log = get_logger(__name__)


@dataclass(kw_only=True)
class ToolResources:
    """Resources that the tools of all runs of a process share."""

    sessions: SessionStates = field(default_factory=MemorySessions)
    initial_state: Mapping[str, Any] = field(default_factory=dict)
    """The session state with which each conversation begins."""
    resolve_token: TokenResolver = token_is_user_id
    threads: ThreadContextManager = field(default_factory=ThreadContextManager)
    http: HttpClients = field(default_factory=HttpClients)
    concurrency_limits: dict[str, asyncio.Semaphore] = field(default_factory=dict)
    """Semaphores of tools with `max_parallel`, by the name of the tool."""
    grace_seconds: float = GRACE_SECONDS
    """How many seconds a cancelled call may take to end. A call that takes longer is recorded as
    ended and still running."""

    async def user_of(self, token_id: str) -> User:
        """Return the user that a token belongs to.

        Raises:
            MissingIdentity: The token belongs to no user.
            IdentityUnavailable: The token resolver failed.
        """
        try:
            resolved = self.resolve_token(token_id)
            user = await resolved if isinstance(resolved, Awaitable) else resolved
            if isinstance(user, str):
                user = User(user)
            if user is not None and not isinstance(user.user_id, str):
                raise TypeError("The token resolver returned a user whose id is not a string.")
        except MissingIdentity as error:
            secrets = Secrets()
            secrets.add(token_id)
            raise MissingIdentity(secrets.scrub(str(error))) from None
        except Exception as error:
            # The message and the local variables may contain the token, so they are not logged.
            frames = traceback.extract_tb(error.__traceback__)
            locations = [f"{each.filename}:{each.lineno} in {each.name}" for each in frames]
            log.error("token_resolver_failed", error=type(error).__name__, traceback=locations)
            raise IdentityUnavailable(
                f"The caller's token could not be looked up: the token resolver failed with "
                f"{type(error).__name__}. Try again later."
            ) from None
        if user is None or not user.user_id:
            raise MissingIdentity("The caller's token belongs to no user. Sign in again.")
        return user

    async def aclose(self) -> None:
        """Close thread contexts and HTTP clients."""
        try:
            await self.threads.aclose()
        finally:
            await self.http.aclose()
