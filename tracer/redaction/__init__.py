"""Redaction: replace secrets in texts by masks before the texts are stored."""

from tracer.redaction.keys import configured_keys
from tracer.redaction.masks import A_MASK, MARK_CHARACTERS, MASK, NOT_KEPT, mask, not_kept
from tracer.redaction.patterns import ValuePattern, configured_patterns
from tracer.redaction.redactor import Redaction, standard_redaction

__all__ = [
    "A_MASK",
    "MARK_CHARACTERS",
    "MASK",
    "NOT_KEPT",
    "Redaction",
    "ValuePattern",
    "configured_keys",
    "configured_patterns",
    "mask",
    "not_kept",
    "standard_redaction",
]
