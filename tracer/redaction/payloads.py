"""Payload policies: a project may store payloads whole, their beginning, or only their size.

A payload that is not stored becomes `[masked: payload of 48213 bytes]`. Of a payload that is stored
in part, the first 2 kB remain, followed by `[masked: rest of 48213 bytes]`. Both state the full
size.
"""

from __future__ import annotations

from enum import StrEnum

from tracer.redaction import A_MASK, MARK_CHARACTERS, not_kept
from tracer.redaction.events import WHOLE_TEXTS
from tracer.text import PREVIEW_BYTES, preview


class PayloadPolicy(StrEnum):
    """How much of arguments, results, messages and other payloads is stored."""

    KEEP = "keep"
    """All."""
    PREVIEW = "preview"
    """The beginning and the size."""
    DROP = "drop"
    """Only the size."""


PAYLOAD_TEXTS = WHOLE_TEXTS - {"title", "message", "error_message", "run_metadata"}
"""The fields of events and records that are payloads. Titles, error messages and metadata are
not."""


def stored_payload(text: str, policy: PayloadPolicy) -> str:
    """Return the part of a payload to store. Idempotent."""
    if policy is PayloadPolicy.KEEP or not text:
        return text
    if policy is PayloadPolicy.DROP:
        return f"[masked: payload of {size_of(text)} bytes]"
    size = len(text.encode())
    # A text that is longer is not a preview, even if it ends with a size mark.
    limit = PREVIEW_BYTES + (MARK_CHARACTERS if not_kept(text) else 0)
    return text if size <= limit else f"{_beginning(text)}[masked: rest of {size} bytes]"


def size_of(text: str) -> int:
    """Return the size of a text in bytes, or its original size if it was cut."""
    mark = not_kept(text)
    return int(mark[1]) if mark is not None else len(text.encode())


def _beginning(text: str) -> str:
    """Return the beginning of a text, without a mask that would be cut in two."""
    beginning = preview(text)
    at = beginning.rfind("[")
    cut = A_MASK.match(text, at) if at >= 0 else None
    return beginning if cut is None or cut.end() <= len(beginning) else beginning[:at]
