"""Answer the questions of people and agents about runs, from trees and rows, as pure functions.

An answer is a plain value. Its method `text` returns it as text for models and terminals, within a
budget of tokens, with recorded texts as quoted data. The server reads the rows and calls these
functions; commands and MCP print the answers.

Public modules:

- `asked`: the questions with their arguments
- `mcp_server`: the questions as tools; needs the package `mcp`
- `rows`: lists of runs, one record, statistics, and the comparison of two runs
"""

from tracer.questions.asked import QUESTIONS, Asked, description
from tracer.questions.outline import Outline, id_of, outline
from tracer.questions.text import (
    UNTRUSTED,
    duration,
    handle,
    joined,
    name,
    quoted,
    shown,
)
from tracer.questions.why import Why, explain, target_of

__all__ = [
    "QUESTIONS",
    "UNTRUSTED",
    "Asked",
    "Outline",
    "Why",
    "description",
    "duration",
    "explain",
    "handle",
    "id_of",
    "joined",
    "name",
    "outline",
    "quoted",
    "shown",
    "target_of",
]
