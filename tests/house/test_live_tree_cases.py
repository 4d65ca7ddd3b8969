from __future__ import annotations

from tests.live_tree_cases import FILE, as_text


def test_the_cases_that_the_viewer_folds_are_those_of_the_present_build_tree() -> None:
    assert FILE.read_bytes() == as_text(), "run: python -m tests.live_tree_cases"
