"""Each folder has a budget of code lines, so that the code grows by decisions only."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter

from tests.house.project_files import project_files, text_of

# To raise a number is a decision: the commit message explains it.
BUDGETS: dict[str, int] = {
    "api": 2_240,
    "api/commands": 920,
    "api/middleware": 390,
    "api/otlp": 552,
    "api/routes": 2_450,
    "tracer": 1_720,
    "tracer/adapters": 2_921,
    "tracer/cli": 1_745,
    "tracer/client": 1_405,
    "tracer/lineage": 1_370,
    "tracer/otel": 9_050,
    "tracer/questions": 1_100,
    "tracer/recorder": 1_080,
    "tracer/records": 2_690,
    "tracer/redaction": 610,
    "tracer/runtime": 1_860,
    "tracer/search": 770,
    "tracer/storage": 11_300,
    "tracer/testing": 570,
    "tracer/tools": 4_680,
}
NO_CODE = (
    *(tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.COMMENT, tokenize.ENDMARKER),
)


def code_lines(source: str) -> int:
    """Return the number of lines that are no docstring, no comment and not blank."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str()), end_lineno=int(last)):
                lines -= set(range(node.lineno, last + 1))
    return len(lines)


def test_no_folder_has_more_code_lines_than_its_budget() -> None:
    lines: Counter[str] = Counter()
    for path in project_files():
        if path.parts[0] in ("tracer", "api") and path.suffix == ".py":
            lines["/".join(path.parts[:-1][:2])] += code_lines(text_of(path) or "")

    over = [
        f"{folder} has {count:,} code lines, and its budget is {BUDGETS.get(folder, 0):,}. Delete "
        "code, or raise the budget and explain why in the commit message."
        for folder, count in lines.items()
        if count > BUDGETS.get(folder, 0)
    ]
    assert over == []
    assert BUDGETS.keys() == lines.keys()


def test_docstrings_comments_and_blank_lines_are_no_code() -> None:
    source = '"""Doc."""\n\n# why\nx = 1  # so\n"""Doc."""\ny = (\n    2,\n)\n'

    assert code_lines(source) == 4
