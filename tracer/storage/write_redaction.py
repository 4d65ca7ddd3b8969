"""How stores mask the names by which they find runs."""

from __future__ import annotations

from tracer.errors import BadRequest
from tracer.redaction import Redaction
from tracer.text import storable


def stored_subject(subject: str, redaction: Redaction) -> str:
    """Return a subject as it is stored with its runs.

    Raises:
        BadRequest: The stored form contains masks, so several subjects may share it.
    """
    stored = redaction.value(storable(subject))
    if stored != storable(subject):
        raise BadRequest(
            f"No run has this subject: it looks like a secret, so it is stored as {stored!r}. "
            "Other subjects may be stored as the same text. Pass this text as the subject to "
            "delete the runs of all these subjects."
        )
    return stored
