"""`generated.sql` shows what generated statements look like."""

from __future__ import annotations

from tests.storage.postgres.generated_sql import PAGE, page


def test_examples_of_generated_statements_are_current() -> None:
    assert PAGE.read_text("utf-8") == page(), "Run `make data`, and review the change of the SQL."
