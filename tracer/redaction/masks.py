"""Masks: the texts in place of secrets, and in place of payloads that are not stored."""

from __future__ import annotations

import re

MASK = "[masked: "
"""The beginning of every mask."""

A_MASK = re.compile(r"\[masked: [a-z0-9_]{1,40}\]")

NOT_KEPT = r"\[masked: (?:payload|rest) of ([0-9]{1,15}) bytes\]\Z"
"""Matches the mask at the end of a payload that is not stored completely. The group is the size of
the whole payload. Python and Postgres both accept this regular expression."""

MARK_CHARACTERS = 60
"""The largest length of a mask that `NOT_KEPT` matches."""

END_OF_MARK = " bytes]"

_NOT_KEPT = re.compile(NOT_KEPT)


def mask(rule: str) -> str:
    """Return the mask for a secret: `[masked: RULE]`."""
    return f"{MASK}{rule}]"


def payload_mark(size: int) -> str:
    """Return the mask for a whole payload of `size` bytes."""
    return f"[masked: payload of {size} bytes]"


def not_kept(text: str) -> re.Match[str] | None:
    """Match the mask at the end of a payload that is not stored completely, as `NOT_KEPT` does.

    Returns None if the text has no such mask.
    """
    return _NOT_KEPT.search(text[-MARK_CHARACTERS:]) if text.endswith(END_OF_MARK) else None
