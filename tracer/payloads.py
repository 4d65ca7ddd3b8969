"""Payloads that a project keeps the beginning of, or nothing: what stands in their place.

A payload that is not kept becomes `[masked: payload of 48213 bytes]`; of one that is kept in part
the first 2 kB stay, and `[masked: rest of 48213 bytes]` follows. The number is that of all of it.
"""

from __future__ import annotations

import re

from tracer.masked_events import WHOLE_TEXTS
from tracer.project_settings import PayloadPolicy
from tracer.text import PREVIEW_BYTES, preview

PAYLOAD_TEXTS = WHOLE_TEXTS - {"title", "message", "error_message"}
"""The fields of events and records that are payloads: neither what a run is called nor what an
error says."""

NOT_KEPT = r"\[masked: (?:payload|rest) of ([0-9]{1,15}) bytes\]\Z"
"""How a text ends of which not all is kept; in Python's and in Postgres's expressions."""

_NOT_KEPT = re.compile(NOT_KEPT)

MARK_CHARACTERS = 60
"""No such end is longer."""


def kept_of(text: str, policy: PayloadPolicy) -> str:
    """Return what is kept of a payload; doing so again changes nothing."""
    if policy is PayloadPolicy.KEEP or not text:
        return text
    if policy is PayloadPolicy.DROP:
        return f"[masked: payload of {size_of(text)} bytes]"
    size = len(text.encode())
    # What is longer only ends as if it had been cut.
    most = PREVIEW_BYTES + (MARK_CHARACTERS if _mark(text) else 0)
    return text if size <= most else f"{preview(text)}[masked: rest of {size} bytes]"


def size_of(text: str) -> int:
    """Return how many bytes a text has, or had before it was cut."""
    mark = _mark(text)
    return int(mark[1]) if mark is not None else len(text.encode())


def _mark(text: str) -> re.Match[str] | None:
    return _NOT_KEPT.search(text[-MARK_CHARACTERS:])
