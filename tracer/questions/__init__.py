"""What people and agents ask of runs: pure functions from trees and rows to answers.

An answer is a plain value. Its method `text` returns it as text for models and terminals, within a
budget of tokens, with recorded texts as quoted data. The server reads the rows and calls these
functions; commands and MCP print what they return.
"""

from tracer.questions.outline import Folded, Line, Outline, outline
from tracer.questions.text import LEAST_BUDGET, TOKEN_BYTES, UNTRUSTED, handle, quoted, shown

__all__ = [
    "LEAST_BUDGET",
    "TOKEN_BYTES",
    "UNTRUSTED",
    "Folded",
    "Line",
    "Outline",
    "handle",
    "outline",
    "quoted",
    "shown",
]
