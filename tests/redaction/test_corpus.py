"""The corpus of secrets and harmless texts: what redaction masks, and what it leaves."""

from __future__ import annotations

from random import Random

from tests.redaction.corpus.measure import samples
from tests.redaction.corpus.shapes import KEY_SHAPES
from tests.redaction.corpus.vendors import VENDOR_FORMS


def test_corpus_has_new_secrets_in_each_run() -> None:
    first, second = ([each.secret for each in samples(Random())] for _ in range(2))

    assert len(set(first)) == len(first)
    assert not set(first) & set(second)


def test_corpus_has_64_forms_and_51_shapes_by_key() -> None:
    assert len({form.recipe for form in VENDOR_FORMS}) == 64
    assert len({shape.text for shape in KEY_SHAPES}) == 51
