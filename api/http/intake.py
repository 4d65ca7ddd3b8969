"""Limits on the bodies of recording requests that the server holds in memory together.

A limit counts bytes that have arrived, after decompression. A `Content-Length` reserves nothing:
a client could announce much and send nothing.

This is no middleware: a share grows with the sizes that only the two recording routes learn while
they decompress and decode. Nor can a middleware await the turn to decode a large body.
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
"""How many sixteenths of both limits one project and one key may use. A project cannot stop the
others from recording, and a key cannot stop the other keys of its project."""

PATIENCE_SECONDS = 5.0
"""The longest wait for the next part of a body, the first included."""

SLOWEST_BYTES = 16 * 2**10
"""The lowest rate of a body in bytes per second, from its start, after `PATIENCE_SECONDS`."""

LARGE_BYTES = 2**20
"""The size from which bodies are decoded one at a time."""


class Intake:
    """The recording requests in progress, limited for each key, each project and the server.

    Each limit applies to all but the oldest request under it, so that a large body gets through.
    The server's limit ignores a project's excess over its own limit, because the excess must not
    displace other projects. Callers without a key have the server's limit only: a server that
    needs no keys has one project.
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
        """Admit a request while inside.

        Args:
            caller: The client that sent it.
            announced: Its `Content-Length` in bytes; 0 if it has none. Nothing is reserved for it,
                but a body that does not fit now is rejected before it is read.

        Raises:
            TooBusy: One of the limits leaves no room for it.
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
            TooBusy: One of the limits leaves no room for them.
        """
        if size > share.size:
            self._check(share, size)
            self._resize(share, size)

    def patience(self, received: int, waited: float) -> float:
        """Return for how many seconds to wait for the next part of a body.

        A client whose machine vanished never closes its connection.

        Args:
            received: The bytes of the body that have arrived.
            waited: For how many seconds the server has waited for them.
        """
        ahead = received / SLOWEST_BYTES - waited
        return self._patience_seconds + min(0.0, ahead)

    @asynccontextmanager
    async def turn(self, size: int) -> AsyncIterator[None]:
        """If a body is large, wait until no other large body is being decoded.

        Python decodes only one body at a time. Decoding several at once would need more memory and
        would not be faster.

        Args:
            size: The size of the body in bytes.
        """
        if size < LARGE_BYTES:
            yield
            return
        async with self._turns:
            yield

    def _rooms_of(self, caller: Caller) -> list[_Room]:
        """Return the rooms that limit a caller: those of its key, its project and the server."""
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
    """The bytes that one request holds."""

    def __init__(self, intake: Intake, rooms: list[_Room]) -> None:
        self._intake = intake
        self.rooms = rooms
        self.size = 0

    def hold(self, size: int) -> None:
        """Raise the reservation to `size` bytes. Raises `TooBusy` if that exceeds a limit."""
        self._intake.hold(self, size)

    def exceeds_project(self, size: int) -> bool:
        """Return whether `size` bytes exceed the project's limit without any other request."""
        return any(room.owner == "project" and size > room.max_bytes for room in self.rooms)

    def growth(self, size: int) -> list[tuple[_Room, int]]:
        """Return each room with the bytes that it would gain if the request held `size` bytes."""
        more, grown = size - self.size, []
        for room in self.rooms:
            grown.append((room, more))
            if room.owner == "project":
                limit = room.max_bytes
                more = min(room.size + more, limit) - min(room.size, limit)
        return grown


class _Room:
    """The limits of one key, one project or the server, and its requests in progress."""

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
            f"The {self.owner} has as many recording requests in progress as it has room for. "
            "Send the same again later."
        )
