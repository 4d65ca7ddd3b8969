"""Masks replace secrets in a text, and payloads that are not stored."""

from __future__ import annotations

import re

MASK = "[masked: "
"""How every mask begins."""

A_MASK = re.compile(r"\[masked: [a-z0-9_]{1,40}\]")

NOT_KEPT = r"\[masked: (?:payload|rest) of ([0-9]{1,15}) bytes\]\Z"
"""The mark of size at the end of an incomplete text, as a regular expression for Python and
Postgres."""

MARK_CHARACTERS = 60
"""No mark of size is longer."""

END_OF_MARK = " bytes]"

_NOT_KEPT = re.compile(NOT_KEPT)


def mask(rule: str) -> str:
    """Return the mask of a secret that `rule` found."""
    return f"{MASK}{rule}]"


def payload_mark(size: int) -> str:
    """Return what replaces a payload of `size` bytes."""
    return f"[masked: payload of {size} bytes]"


def not_kept(text: str) -> re.Match[str] | None:
    """Return the mark of size at the end of a text; None if the text is complete."""
    return _NOT_KEPT.search(text[-MARK_CHARACTERS:]) if text.endswith(END_OF_MARK) else None
