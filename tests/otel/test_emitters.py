"""The page of the emitters is what the captures show."""

from __future__ import annotations

from tests.otel.emitters import PAGE, REASONS, captures, page


def test_page_of_the_emitters_is_generated_from_the_captures() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "Run `make emitters`."


def test_every_incomplete_recording_has_a_reason_on_the_page() -> None:
    incomplete = {each.name for each in captures() if not each.figures.is_complete}

    assert incomplete <= REASONS.keys()
