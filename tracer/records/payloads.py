"""Payload policies: a project stores payloads whole, only their beginning, or only their size.

Payloads are arguments, results, messages and other long texts. A payload that is not stored becomes
`[masked: payload of 48213 bytes]`. If only the beginning is stored, the text is the first 2 kB,
followed by `[masked: rest of 48213 bytes]`. In both masks, the number is the size of the whole
payload. JSON that nests too deep is shortened under every policy.
"""

from __future__ import annotations

from enum import StrEnum

from tracer.records.masks import A_MASK, MARK_CHARACTERS, not_kept
from tracer.text import PREVIEW_BYTES, nests_too_deep, preview


class PayloadPolicy(StrEnum):
    """How much of arguments, results, messages and other payloads is stored."""

    KEEP = "keep"
    """Store the whole text."""
    PREVIEW = "preview"
    """Store the beginning of the text, and its size."""
    DROP = "drop"
    """Store only the size of the text."""


WHOLE_TEXTS = frozenset(
    {
        *("arguments", "effective_arguments", "result", "state_changes"),
        *("thought", "messages", "title", "user_request", "request", "summary"),
        *("parameters", "offered_tools", "run_metadata"),
        *("message", "stack", "error_message", "error_stack"),
    }
)
"""Fields in which secrets are recognised by their keys (`password=…`) and by their form (`ghp_…`).
In all other fields, secrets are recognised by their form only."""

PAYLOAD_TEXTS = WHOLE_TEXTS - {"title", "message", "error_message", "run_metadata"}
"""The fields of events and records that are payloads. Titles, error messages and metadata are
not."""


def stored_payload(text: str, policy: PayloadPolicy) -> str:
    """Return the text to store for a payload. A second call does not change the result."""
    if policy is PayloadPolicy.KEEP or not text:
        return text
    if policy is PayloadPolicy.DROP:
        return f"[masked: payload of {size_of(text)} bytes]"
    size = len(text.encode())
    # A text that is longer is not a preview, even if it ends with a size mark.
    limit = PREVIEW_BYTES + (MARK_CHARACTERS if not_kept(text) else 0)
    return text if size <= limit else f"{_beginning(text)}[masked: rest of {size} bytes]"


def within_depth(text: str | None) -> str | None:
    """Return a payload; if it nests more than 512 levels, only its beginning.

    The result has at most about 2,000 levels. Postgres's parser raises an error at some thousand
    levels, even in `pg_input_is_valid`. Views of tool calls could then not be read.
    """
    if text is None or not nests_too_deep(text):
        return text
    return stored_payload(text, PayloadPolicy.PREVIEW)


def size_of(text: str) -> int:
    """Return the size of a payload in bytes. For a shortened payload, this is its original size."""
    mark = not_kept(text)
    return int(mark[1]) if mark is not None else len(text.encode())


def _beginning(text: str) -> str:
    """Return the beginning of a text. A mask that would be cut in two is omitted."""
    beginning = preview(text)
    at = beginning.rfind("[")
    cut = A_MASK.match(text, at) if at >= 0 else None
    return beginning if cut is None or cut.end() <= len(beginning) else beginning[:at]
