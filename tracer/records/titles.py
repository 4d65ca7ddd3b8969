"""Derive the title of a plan from its request."""

from __future__ import annotations

from tracer.records.masks import not_kept
from tracer.text import first_line

TITLE_CHARACTERS = 120
"""The length of a title that is made from a request."""


def title_of(title: str | None, request: str | None) -> str | None:
    """Return the title of a plan.

    Without a recorded title, the title is the first line of the request.

    Args:
        title: The recorded title, which is returned unchanged; None if there is none.
        request: The request, in stored form (`tracer.text`).

    Returns:
        None if there is no title and no request, or if the project does not store requests.
    """
    if title or request is None:
        return title
    mark = not_kept(request)
    if mark is not None:
        request = request[: -len(mark[0])]
    if request.lstrip()[:1] in ("{", "["):  # JSON on several lines
        request = " ".join(request[: 8 * TITLE_CHARACTERS].split())
    return first_line(request, TITLE_CHARACTERS) or title
