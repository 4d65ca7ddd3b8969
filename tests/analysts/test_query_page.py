"""The questions of `docs/guides/queries.md` are answered as it says there."""

from __future__ import annotations

from tests.analysts.query_page import PAGE, answered_page, queries
from tests.citus_databases import without_analysts


@without_analysts
async def test_every_query_of_the_page_gives_what_stands_there(database_url: str) -> None:
    page = await answered_page(database_url)

    assert page == PAGE.read_text(encoding="utf-8"), "the page is stale: run `make data`"


def test_the_page_has_many_questions_each_with_an_answer() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert len(queries()) >= 20
    assert page.count("\n## ") == len(queries())
    assert page.count("|\n| --- |") == len(queries())
    assert all("FROM trace." in query for query in queries())
