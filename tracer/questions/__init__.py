"""What people and agents ask of runs: pure functions from trees and rows to answers.

An answer is a plain value. Its method `text` returns it as text for models and terminals, within a
budget of tokens, with recorded texts as quoted data. The server reads the rows and calls these
functions; commands and MCP print what they return.

Public modules:

- `asked`: the questions with their arguments
- `mcp_server`: the questions as tools; needs the package `mcp`
"""

from tracer.questions.asked import QUESTIONS, Asked, description
from tracer.questions.outline import Folded, Line, Outline, kind_of, outline, outline_below
from tracer.questions.rows import SAME, differences, record, runs
from tracer.questions.rows import Stats as StatsAnswer
from tracer.questions.text import (
    LEAST_BUDGET,
    TOKEN_BYTES,
    UNTRUSTED,
    duration,
    handle,
    joined,
    name,
    quoted,
    shown,
)
from tracer.questions.why import Why, explain, round_above, target_of, useful_lines

__all__ = [
    "LEAST_BUDGET",
    "QUESTIONS",
    "SAME",
    "TOKEN_BYTES",
    "UNTRUSTED",
    "Asked",
    "Folded",
    "Line",
    "Outline",
    "StatsAnswer",
    "Why",
    "description",
    "differences",
    "duration",
    "explain",
    "handle",
    "joined",
    "kind_of",
    "name",
    "outline",
    "outline_below",
    "quoted",
    "record",
    "round_above",
    "runs",
    "shown",
    "target_of",
    "useful_lines",
]
