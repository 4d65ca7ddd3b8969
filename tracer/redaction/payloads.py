"""Payloads that a project keeps the beginning of, or nothing: what stands in their place.

A payload that is not kept becomes `[masked: payload of 48213 bytes]`; of one that is kept in part
the first 2 kB stay, and `[masked: rest of 48213 bytes]` follows. The number is that of all of it.
"""

from __future__ import annotations

from enum import StrEnum

from tracer.redaction import A_MASK, MARK_CHARACTERS, not_kept
from tracer.redaction.events import WHOLE_TEXTS
from tracer.text import PREVIEW_BYTES, preview


class PayloadPolicy(StrEnum):
    """What is kept of arguments, results, messages and the like."""

    KEEP = "keep"
    """All of it."""
    PREVIEW = "preview"
    """The beginning of each, and its size."""
    DROP = "drop"
    """Its size alone."""


PAYLOAD_TEXTS = WHOLE_TEXTS - {"title", "message", "error_message"}
"""The fields of events and records that are payloads: neither what a run is called nor what an
error says."""


def kept_of(text: str, policy: PayloadPolicy) -> str:
    """Return what is kept of a payload; doing so again changes nothing."""
    if policy is PayloadPolicy.KEEP or not text:
        return text
    if policy is PayloadPolicy.DROP:
        return f"[masked: payload of {size_of(text)} bytes]"
    size = len(text.encode())
    # What is longer only ends as if it had been cut.
    most = PREVIEW_BYTES + (MARK_CHARACTERS if not_kept(text) else 0)
    return text if size <= most else f"{_beginning(text)}[masked: rest of {size} bytes]"


def size_of(text: str) -> int:
    """Return how many bytes a text has, or had before it was cut."""
    mark = not_kept(text)
    return int(mark[1]) if mark is not None else len(text.encode())


def _beginning(text: str) -> str:
    """Return the beginning of a text, up to a mask that would be cut: half of one is none."""
    beginning = preview(text)
    at = beginning.rfind("[")
    cut = A_MASK.match(text, at) if at >= 0 else None
    return beginning if cut is None or cut.end() <= len(beginning) else beginning[:at]
