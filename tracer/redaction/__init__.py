"""Redaction: replace secrets in texts by masks before the texts are stored."""

from tracer.redaction.redactor import Redaction, standard_redaction
from tracer.redaction.rules import ValuePattern, configured_keys, configured_patterns

__all__ = [
    "Redaction",
    "ValuePattern",
    "configured_keys",
    "configured_patterns",
    "standard_redaction",
]
