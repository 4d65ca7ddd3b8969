"""Limits on the number of recording requests in progress, and on the memory of their bodies.

Only bytes that have arrived count, after decompression. A `Content-Length` reserves no memory,
because a client could announce a large body and never send it.

The limits are not a middleware, because only the recording routes know how much memory a request
needs: the need grows while they decompress and decode the body. The routes also use this module to
decode only one large body at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from weakref import WeakValueDictionary

from tracer.errors import TooBusy
from tracer.records.access import Caller

MAX_BYTES = 256 * 2**20
"""The bytes that all requests may hold together."""

MAX_REQUESTS = 512
"""The number of requests that may be in progress together."""

_PARTS = {"project": 4, "key": 3}
"""How many sixteenths of `MAX_BYTES` and `MAX_REQUESTS` one project and one key may use. So a
project cannot stop other projects from recording, nor can a key stop other keys of its project."""

PATIENCE_SECONDS = 5.0
"""The longest wait for the first or the next part of a body."""

SLOWEST_BYTES = 16 * 2**10
"""The lowest accepted average rate of a body, in bytes per second. It applies from
`PATIENCE_SECONDS` after the start of the body."""

LARGE_BYTES = 2**20
"""The size from which bodies are decoded one at a time."""


class Intake:
    """The recording requests in progress, limited for each key, each project and the server.

    The oldest request under a limit may use more memory than the limit, so that a large body is not
    rejected again and again. If a project exceeds its limit in this way, the excess does not count
    towards the server's limit, because it must not displace other projects.

    If a caller has no key, only the server's limit applies. A server that needs no keys has only
    one project.
    """

    def __init__(
        self,
        max_bytes: int = MAX_BYTES,
        max_requests: int = MAX_REQUESTS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._server = _Room("server", max_bytes, max_requests)
        self._rooms = WeakValueDictionary[Hashable, _Room]()
        self._oversized: Share | None = None
        self._patience_seconds = patience_seconds
        self._turns = asyncio.Lock()

    @contextmanager
    def share(self, caller: Caller, announced: int) -> Iterator[Share]:
        """Count a request as in progress inside a `with` block, and yield its memory reservation.

        Args:
            caller: The client that sent the request.
            announced: The request's `Content-Length` in bytes; 0 if it has none. No memory is
                reserved, but if the body would exceed a limit now, the request is rejected before
                the body is read.

        Raises:
            TooBusy: The request would exceed a limit of its key, its project or the server.
        """
        share = Share(self, self._rooms_of(caller))
        for room in share.rooms:
            if room.shares and len(room.shares) >= room.max_requests:
                raise room.too_busy()
        for room in share.rooms:
            room.shares[share] = None
        try:
            self._check(share, announced)
            yield share
        finally:
            self._resize(share, 0)
            for room in share.rooms:
                del room.shares[share]

    def hold(self, share: Share, size: int) -> None:
        """Raise the memory reservation of a request to `size` bytes. A smaller size has no effect.

        Raises:
            TooBusy: The request would exceed a limit of its key, its project or the server.
        """
        if size > share.size:
            self._check(share, size)
            self._resize(share, size)

    def patience(self, received: int, waited: float) -> float:
        """Return how many seconds to wait for the next part of a body.

        The time is limited, because a client whose machine has crashed never closes its connection.
        If the body arrives at less than `SLOWEST_BYTES` per second, the time gets shorter.

        Args:
            received: How many bytes of the body have arrived.
            waited: How many seconds the server has waited for these bytes.
        """
        ahead = received / SLOWEST_BYTES - waited
        return self._patience_seconds + min(0.0, ahead)

    @asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """If a body is large, wait until no other large body is being decoded.

        Because of Python's global interpreter lock, decoding several large bodies at once would not
        be faster, but would need more memory.

        Args:
            size: The size of the body in bytes.
        """
        if size < LARGE_BYTES:
            yield
            return
        async with self._turns:
            yield

    def _rooms_of(self, caller: Caller) -> list[_Room]:
        """Return the limits that apply to a caller: of its key, its project and the server."""
        if caller.key_id is None:
            return [self._server]
        key = self._part("key", caller.key_id)
        return [key, self._part("project", caller.project_id), self._server]

    def _part(self, owner: str, owner_id: Hashable) -> _Room:
        room = self._rooms.get((owner, owner_id))
        if room is None:
            server, sixteenths = self._server, _PARTS[owner]
            limits = (server.max_bytes * sixteenths // 16, server.max_requests * sixteenths // 16)
            room = self._rooms[owner, owner_id] = _Room(owner, *limits)
        return room

    def _check(self, share: Share, size: int) -> None:
        for room, growth in share.growth(size):
            is_oldest = next(iter(room.shares)) is share
            if growth > 0 and not is_oldest and room.size + growth > room.max_bytes:
                raise room.too_busy()
        # The server's limit ignores the excess, so only one request at a time may exceed it.
        if share.exceeds_project(size) and self._oversized not in (None, share):
            raise self._server.too_busy()

    def _resize(self, share: Share, size: int) -> None:
        for room, growth in share.growth(size):
            room.size += growth
        share.size = size
        if share.exceeds_project(size):
            self._oversized = share
        elif self._oversized is share:
            self._oversized = None


class Share:
    """The memory that one recording request has reserved, in bytes."""

    def __init__(self, intake: Intake, rooms: list[_Room]) -> None:
        self._intake = intake
        self.rooms = rooms
        self.size = 0

    def hold(self, size: int) -> None:
        """Raise the reservation to `size` bytes. Raises `TooBusy` if that exceeds a limit."""
        self._intake.hold(self, size)

    def exceeds_project(self, size: int) -> bool:
        """Return whether one request of `size` bytes alone exceeds the project's limit."""
        return any(room.owner == "project" and size > room.max_bytes for room in self.rooms)

    def growth(self, size: int) -> list[tuple[_Room, int]]:
        """Return how many more bytes would count towards each limit if `size` were reserved."""
        more, grown = size - self.size, []
        for room in self.rooms:
            grown.append((room, more))
            if room.owner == "project":
                limit = room.max_bytes
                more = min(room.size + more, limit) - min(room.size, limit)
        return grown


class _Room:
    """The limits of one key, project or server, and the requests that count towards them."""

    def __init__(self, owner: str, max_bytes: int, max_requests: int) -> None:
        self.owner = owner
        self.max_bytes = max_bytes
        self.max_requests = max_requests
        self.shares: dict[Share, None] = {}
        """The requests in progress, the oldest first."""
        self.size = 0

    def too_busy(self) -> TooBusy:
        """Return the error for a request that exceeds these limits."""
        return TooBusy(
            f"The {self.owner} has reached its limit of recording requests in progress. "
            "Send the request again later."
        )
