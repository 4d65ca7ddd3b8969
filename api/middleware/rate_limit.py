"""Rate limits for each key, as token buckets. Each server process counts separately.

The library `limits` is not used, because it has no token bucket. Its moving window stores an entry
for each unit, here for each byte. Its fixed window may let twice the rate through. Its clock cannot
be replaced in tests.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

from cachetools import LRUCache
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.middleware.authentication import is_sign_in
from tracer.errors import TooFast
from tracer.records.access import Caller

BURST_SECONDS = 5.0
"""A full bucket holds as many tokens as are added in this number of seconds."""

MAX_CLIENTS = 10_000
"""The largest number of clients with buckets. If there are more, the buckets of the client that has
been idle longest are removed."""


class TokenBucket:
    """A token bucket. While it is not empty, a request may take more tokens than it contains."""

    def __init__(self, per_second: float, seconds: Callable[[], float]) -> None:
        self._per_second = per_second
        self._seconds = seconds
        self._tokens = per_second * BURST_SECONDS
        self._filled_at = seconds()

    def wait(self) -> float:
        """Return in how many seconds the bucket has a token again; 0 if it has one now."""
        now = self._seconds()
        tokens = self._tokens + (now - self._filled_at) * self._per_second
        self._tokens = min(tokens, self._per_second * BURST_SECONDS)
        self._filled_at = now
        return 0.0 if self._tokens > 0 else (1 - self._tokens) / self._per_second

    def spend(self, tokens: float) -> None:
        """Take tokens out. The number of tokens may become negative."""
        self._tokens -= tokens


class RateLimits:
    """Two token buckets for each client: one for its requests and one for its bytes."""

    def __init__(
        self,
        requests_per_second: float,
        bytes_per_second: float,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rates = (requests_per_second, bytes_per_second)
        self._seconds = seconds
        self._buckets = LRUCache[Hashable, tuple[TokenBucket, TokenBucket]](MAX_CLIENTS)

    def admit(self, client: Hashable) -> Callable[[int], None]:
        """Count a request, and return a function that counts bytes of its body.

        Args:
            client: Identifies the client.

        Raises:
            TooFast: One of the client's buckets is empty.
        """
        buckets = self._buckets.get(client)
        if buckets is None:
            requests, sent = (TokenBucket(rate, self._seconds) for rate in self._rates)
            buckets = self._buckets[client] = (requests, sent)
        requests, sent = buckets
        wait = max(requests.wait(), sent.wait())
        if wait > 0:
            raise TooFast(retry_after=wait)
        requests.spend(1)
        return sent.spend


class RateLimit:
    """Middleware that rejects a request if one of the client's token buckets is empty."""

    def __init__(self, app: ASGIApp, limits: RateLimits | None) -> None:
        """Create the middleware; without `limits` it admits every request."""
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request.

        Raises:
            TooFast: One of the client's token buckets is empty.
        """
        client = None if self._limits is None else _client(scope)
        if self._limits is None or client is None:
            await self._app(scope, receive, send)
            return
        count = self._limits.admit(client)

        async def counted() -> Message:
            message = await receive()
            count(len(message.get("body", b"")))
            return message

        await self._app(scope, counted, send)


def _client(scope: Scope) -> Hashable | None:
    """Return the client whose rate is limited: the key, or for a sign-in the IP address.

    None for other requests, which are not limited.
    """
    if scope["type"] != "http":
        return None
    if is_sign_in(scope):
        return ("address", scope["client"] and scope["client"][0])
    caller = scope.get("state", {}).get("caller")
    return caller.key_id if isinstance(caller, Caller) else None
