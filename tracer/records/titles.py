"""The title of a plan without one: the first line of its request."""

from __future__ import annotations

from tracer.redaction import not_kept
from tracer.text import first_line

TITLE_CHARACTERS = 120
"""The length of a title that is made from a request."""


def title_of(title: str | None, request: str | None) -> str | None:
    """Return the title of a plan.

    Args:
        title: The given title. It is returned unchanged.
        request: The request, in stored form.

    Returns:
        None if there is neither a title nor a request, or the request is not stored.
    """
    if title or request is None:
        return title
    mark = not_kept(request)
    if mark is not None:
        request = request[: -len(mark[0])]
    if request.lstrip()[:1] in ("{", "["):  # JSON on several lines
        request = " ".join(request[: 8 * TITLE_CHARACTERS].split())
    return first_line(request, TITLE_CHARACTERS) or title
