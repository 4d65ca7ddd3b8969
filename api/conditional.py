"""Conditional requests: ETags that are computed from the revisions of runs, and 304 responses.

The server first converts pending spans to records. If the request has `If-None-Match`, the server
then reads the run's revision with one cheap query. If the client already has the response of this
revision, the server answers 304.

The content of a response is never older than its ETag. A tree and its ETag come from one snapshot.
The content of other responses may be newer than the ETag. The client may then receive the same
content twice, but it never misses a change.
"""

from __future__ import annotations

import hashlib
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import orjson
from fastapi import Depends, Header, Request, Response

from api.freshness import freshness_of
from tracer import errors
from tracer.lineage import Revision

NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    HTTPStatus.NOT_MODIFIED.value: {"description": "Nothing changed since the given ETag."}
}
"""The entry for a 304 response in the OpenAPI document."""


class NotModified(Exception):
    """Raised if the client has the response already. The middleware `ETags` answers with 304."""

    def __init__(self, headers: dict[str, str]) -> None:
        super().__init__()
        self.headers = headers


class ConditionalRequest:
    """The ETags in a request's `If-None-Match`, which identify responses that the client has."""

    def __init__(self, request: Request, response: Response, tags: str | None) -> None:
        self._request = request
        self._response = response
        self._tags = {_strong(tag) for tag in (tags or "").split(",")}

    @property
    def is_anything(self) -> bool:
        """Whether the request has an ETag to compare. Without one, skip reading the revision."""
        return self._tags != {""}

    def check(self, *revisions: Revision) -> dict[str, str]:
        """Add the caching headers to the response, and return them.

        A response that lacks accepted spans gets no ETag, because it must not be cached.

        Args:
            revisions: The revisions of the runs in the response.

        Raises:
            NotModified: The client already has this response.
        """
        if freshness_of(self._request).behind is not None:
            headers = {"Cache-Control": "private, no-store"}
            self._response.headers.update(headers)
            return headers
        target = [self._request.url.path, *sorted(self._request.query_params.multi_items())]
        states = [(str(r.root_plan_id), r.number, r.recorded_at) for r in revisions]
        digest = hashlib.sha256(orjson.dumps([_program(), target, states])).hexdigest()[:32]
        # Weak, because the same content may have other bytes, for example when compressed.
        headers = {"ETag": f'W/"{digest}"', "Cache-Control": "private, no-cache"}
        if self._tags & {"*", f'"{digest}"'}:
            raise NotModified(headers)
        self._response.headers.update(headers)
        return headers


def _strong(tag: str) -> str:
    return tag.strip().removeprefix("W/")


@cache
def _program() -> str:
    """Return a digest of the source code.

    Each ETag contains the digest, because another version of the code may answer differently.
    """
    folders = [Path(__file__).parent, Path(errors.__file__).parent]
    sources = [each.read_bytes() for folder in folders for each in sorted(folder.rglob("*.py"))]
    return hashlib.sha256(b"\0".join(sources)).hexdigest()


IfNoneMatch = Annotated[str | None, Header(description="ETags of responses that the client has.")]


async def _conditional(
    request: Request, response: Response, if_none_match: IfNoneMatch = None
) -> ConditionalRequest:
    return ConditionalRequest(request, response, if_none_match)


Conditional = Annotated[ConditionalRequest, Depends(_conditional)]
