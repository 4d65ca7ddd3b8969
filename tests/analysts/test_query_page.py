"""The queries of `docs/guides/queries.md` return the results that the page shows."""

from __future__ import annotations

from tests.analysts.query_page import PAGE, answered_page, queries


async def test_every_query_on_the_page_returns_the_documented_result(database_url: str) -> None:
    page = await answered_page(database_url)

    assert page == PAGE.read_text(encoding="utf-8"), "the page is stale: run `make data`"


def test_page_has_at_least_20_queries_each_with_a_result() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert len(queries()) >= 20
    assert page.count("\n## ") == len(queries())
    assert page.count("|\n| --- |") == len(queries())
    assert all("FROM trace." in query for query in queries())
