"""Figures of the corpus: the share of secrets that is masked, and the masks in harmless texts.

`python -m tests.redaction.corpus.measure` prints the figures of the whole corpus.
`… measure KIND` lists the masks in the harmless texts of a kind.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from random import Random
from typing import NamedTuple

from tests.redaction.corpus.harmless import (
    FALSE_FINDINGS,
    FOLDERS,
    files_of,
    ids,
    log_probs,
    text_of,
)
from tests.redaction.corpus.recipes import made
from tests.redaction.corpus.shapes import KEY_SHAPES
from tests.redaction.corpus.surroundings import LANGUAGES, SURROUNDINGS
from tests.redaction.corpus.vendors import VENDOR_FORMS
from tracer.redaction import Redaction

Masked = Callable[[str], str]

_MASK = re.compile(r"\[masked: ([a-z_]+)[^\]]*\]")


class Sample(NamedTuple):
    """A text with a secret."""

    kind: str
    surroundings: str
    language: str
    text: str
    secret: str

    def is_masked(self, masked: Masked) -> bool:
        """Return whether no part of the secret remains that could be used."""
        redacted = masked(self.text)
        size = max(len(self.secret) // 2, 5)
        parts = {self.secret[at : at + size] for at in range(len(self.secret) - size + 1)}
        return not any(part in redacted for part in parts)


def samples(random: Random) -> Iterator[Sample]:
    """Yield each form and shape in each surroundings and language, with new secrets."""
    for form in VENDOR_FORMS:
        yield from _around(form.name, "SECRET", form.recipe, random)
    for shape in KEY_SHAPES:
        yield from _around(shape.name, shape.text, shape.secret, random)


def _around(kind: str, text: str, recipe: str, random: Random) -> Iterator[Sample]:
    for surroundings, put in SURROUNDINGS.items():
        for language, sentence in LANGUAGES.items():
            secret = made(recipe, random)
            inner = text.replace("SECRET", secret)
            # The lines of a private key are what must not be found.
            hidden = secret.split("\n")[1] if "\n" in secret else secret
            yield Sample(kind, surroundings, language, put(inner, sentence), hidden)


class Findings(NamedTuple):
    """What was masked in harmless texts."""

    characters: int
    texts: int
    masks: Counter[str]
    """The number of masks by rule."""

    def per_megabyte(self) -> float:
        """Return the number of masks in a megabyte of text."""
        return self.masks.total() / max(self.characters, 1) * 1e6


def findings(texts: Iterable[str], masked: Masked) -> Findings:
    """Redact harmless texts, and count the masks."""
    characters = count = 0
    masks: Counter[str] = Counter()
    for text in texts:
        characters += len(text)
        count += 1
        redacted = masked(text)
        if redacted != text:
            masks.update(_MASK.findall(redacted))
            masks.subtract(_MASK.findall(text))
    return Findings(characters, count, +masks)


def places(texts: Iterable[tuple[str, str]], masked: Masked, before: int = 40) -> Iterator[str]:
    """Yield a line for each mask: the rule, and the text that it replaced with the text before.

    Args:
        texts: The name and the content of each text.
        masked: Redacts a text.
        before: The number of characters to show before and after a mask.
    """
    for name, text in texts:
        at = 0
        parts = _MASK.split(masked(text))
        for kept, rule, following in zip(parts[::2], parts[1::2], parts[2::2], strict=False):
            at += len(kept)
            end = text.find(following[:60], at + 1) if following else len(text)
            if end < 0:
                break
            shown = f"{text[max(0, at - before) : at]}⟦{text[at:end]}⟧{text[end : end + 20]}"
            yield f"{rule}\t{shown!r}\t{name}"
            at = end


def recall(masked: Masked, random: Random) -> dict[str, tuple[int, int]]:
    """Return how many samples are masked, and how many there are, by kind."""
    masked_samples: Counter[str] = Counter()
    every: Counter[str] = Counter()
    for sample in samples(random):
        kinds = ("all", sample.kind, f"in: {sample.surroundings}", f"with: {sample.language}")
        every.update(kinds)
        if sample.is_masked(masked):
            masked_samples.update(kinds)
    return {kind: (masked_samples[kind], count) for kind, count in every.items()}


def harmless_texts(random: Random) -> dict[str, Iterable[str]]:
    """Return all harmless texts, by kind."""
    texts: dict[str, Iterable[str]] = {kind: map(text_of, files_of(kind)) for kind in FOLDERS}
    texts |= {"log-probs": log_probs(1_000_000, random), "ids": ids(1_000_000, random)}
    return texts | {"false findings": FALSE_FINDINGS}


def figures(masked: Masked, random: Random) -> Iterator[str]:
    """Yield a line for each figure of the corpus."""
    for kind, (count, total) in recall(masked, random).items():
        yield f"{count / total:7.1%} of {total:6,} masked: {kind}"
    for kind, texts in harmless_texts(random).items():
        found = findings(texts, masked)
        rules = ", ".join(f"{rule} {count}" for rule, count in found.masks.most_common())
        yield (
            f"{found.per_megabyte():8.2f} masks per MB of {kind}: {found.characters / 1e6:.0f} MB,"
            f" {found.texts:,} texts: {rules}"
        )


def main(kinds: list[str]) -> None:
    """Print the figures, or the masks in the harmless texts of `kinds`."""
    masked = Redaction().text
    files = chain.from_iterable(files_of(kind) for kind in kinds)
    found = places(((str(each), text_of(each)) for each in files), masked)
    for line in found if kinds else figures(masked, Random()):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
