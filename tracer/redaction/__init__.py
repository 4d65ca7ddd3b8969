"""Redaction: replace secrets in texts by masks before the texts are stored."""

from tracer.redaction.keys import configured_keys
from tracer.redaction.patterns import ValuePattern, configured_patterns
from tracer.redaction.redactor import Redaction, standard_redaction

__all__ = [
    "Redaction",
    "ValuePattern",
    "configured_keys",
    "configured_patterns",
    "standard_redaction",
]
