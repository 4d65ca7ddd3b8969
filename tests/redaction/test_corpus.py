"""The corpus of secrets and harmless texts: what redaction masks, and what it leaves."""

from __future__ import annotations

import tomllib
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracer.redaction
from tests.profiles import scaled
from tests.redaction.corpus.harmless import FALSE_FINDINGS, files_of, ids, log_probs, text_of
from tests.redaction.corpus.measure import Sample, findings, samples
from tests.redaction.corpus.recipes import made
from tests.redaction.corpus.shapes import KEY_SHAPES
from tests.redaction.corpus.vendors import VENDOR_FORMS
from tracer.records.masks import mask
from tracer.redaction import Redaction

REDACTION = Redaction()
TABLE = tomllib.loads(Path(tracer.redaction.__file__).with_name("patterns.toml").read_text())

LEAST_MASKED = 0.98
"""The share of the secrets that must be masked."""

MOST_MASKS = {"virtual environment": 12, "node_modules": 12, "captures": 4}
"""The most masks in a megabyte of real text. Most of these masks are right: documentation and tests
contain passwords. `python -m tests.redaction.corpus.measure KIND` lists them."""


def test_corpus_has_new_secrets_in_each_run() -> None:
    first, second = ([each.secret for each in samples(Random())] for _ in range(2))

    assert len(set(first)) == len(first)
    assert not set(first) & set(second)


def test_corpus_has_64_forms_and_51_shapes_by_key() -> None:
    assert len({form.recipe for form in VENDOR_FORMS}) == 64
    assert len({shape.text for shape in KEY_SHAPES}) == 51


def missed(found: list[Sample]) -> Counter[str]:
    return Counter(each.kind for each in found if not each.is_masked(REDACTION.text))


def test_a_sample_of_the_secrets_is_masked() -> None:
    random = Random()
    found = random.sample(list(samples(random)), 800)
    assert missed(found).total() <= (1 - LEAST_MASKED) * len(found), missed(found)


@pytest.mark.thorough
def test_every_form_and_shape_is_masked_in_every_text() -> None:
    found = list(samples(Random()))
    counts = missed(found)
    assert counts.total() <= (1 - LEAST_MASKED) * len(found), counts
    # No form or shape fails in a whole kind of text.
    assert [kind for kind, count in counts.items() if count >= 6] == []


@pytest.mark.parametrize("row", TABLE["form"], ids=lambda row: row["rule"])
def test_forms_of_the_table_match_their_example_only(row: dict[str, str]) -> None:
    example = made(row["example"], Random())
    assert mask(row["rule"]) in REDACTION.value(f"it is {example}, again")
    assert REDACTION.value(row["counter_example"]) == row["counter_example"]


@pytest.mark.parametrize("row", TABLE["key"], ids=lambda row: row["rule"])
def test_keys_of_the_table_match_their_example_only(row: dict[str, str]) -> None:
    assert REDACTION.rule_of(row["example"]) == row["rule"]
    assert REDACTION.rule_of(row["counter_example"]) is None


def test_texts_that_were_masked_by_mistake_are_unchanged() -> None:
    assert [text for text in FALSE_FINDINGS if REDACTION.text(text) != text] == []


@pytest.mark.parametrize("kind", MOST_MASKS)
def test_real_texts_of_a_sample_have_few_masks(kind: str) -> None:
    files = files_of(kind)
    texts = map(text_of, Random().sample(files, min(scaled(2000) * 10, len(files))))
    found = findings(texts, REDACTION.text)
    # A single file may hold a list of passwords.
    assert found.masks.total() <= 50 + MOST_MASKS[kind] * found.characters / 1e6, found


def test_log_probs_and_ids_are_unchanged() -> None:
    random, count = Random(), scaled(1_000_000) * 1000
    texts = [*log_probs(count, random), *ids(count, random)]
    assert findings(islice(texts, 2000), REDACTION.text).masks == {}


PREFIXES = st.one_of(
    st.sampled_from(
        [
            *(
                "[INFO] ",
                "{{template}} ",
                "[section]\n",
                "{",
                "[",
                "[[",
                '{"',
                "{'a': 1}\n",
                "<!-- ",
            ),
            *("\x1b[32m", "\x1b]8;;", "\\n", "\\u001b[1m", "%20", "&quot;", '"', "'", "`", "```\n"),
            *('{"a": "b"} ', "[1, 2]\n", "key=", "password: ", "// ", "# ", "é", "密码：", "\x00"),
        ]
    ),
    st.text(max_size=20).map(lambda text: f"{text} "),
)


@given(st.lists(PREFIXES, max_size=3).map("".join), st.integers(0, 2**32))
def test_a_prefix_before_a_text_leaves_its_secret_masked(prefix: str, seed: int) -> None:
    random = Random(seed)
    for sample in random.sample(list(samples(random)), 40):
        text = prefix + sample.text
        assert sample._replace(text=text).is_masked(REDACTION.text), (text, REDACTION.text(text))
