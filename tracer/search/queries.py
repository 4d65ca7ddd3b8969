"""Queries: words that a run's texts must and must not contain, and where a text contains them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from tracer.errors import BadRequest
from tracer.records.pages import SnippetPart
from tracer.search.words import is_unspaced, places_of, plain_text, words_of

FEWEST_CHARACTERS = 3
"""The last word of a query matches words that begin with it if it has this many characters."""

MOST_TERMS = 20
SNIPPET_CHARACTERS = 180
_BEFORE = 50

_TERM = re.compile(r'(-?)(?:"([^"]*)("?)|([^\s"]+))')


@dataclass(frozen=True)
class Term:
    """A word or a phrase of a query."""

    words: tuple[str, ...]
    """Words of the index. They must follow each other."""
    is_prefix: bool
    """Whether the last word may be the beginning of a longer one."""

    @classmethod
    def parse(cls, text: str, is_last: bool) -> Term:
        """Parse a word or a phrase. It has no words if `text` has none.

        Args:
            text: The word, or what is between the quotes.
            is_last: Whether more may be typed.
        """
        words = words_of(text).split()
        if words and is_unspaced(words[-1]):
            # A character after the last one is not known, so this one only begins a pair. If it
            # ends one, too, that one is enough.
            is_pair = len(words) > 1 and is_unspaced(words[-2]) and len(words[-2]) == 2
            return cls(tuple(words[:-1] if is_pair else words), not is_pair)
        is_prefix = is_last and bool(words) and len(words[-1]) >= FEWEST_CHARACTERS
        return cls(tuple(words), is_prefix)

    def numbers_in(self, words: str) -> Iterator[int]:
        """Yield the numbers of the words at which the term begins in words with spaces around."""
        wanted = f" {' '.join(self.words)}{'' if self.is_prefix else ' '}"
        at = words.find(wanted)
        while at >= 0:
            yield words.count(" ", 0, at)
            at = words.find(wanted, at + 1)


@dataclass(frozen=True)
class Query:
    """A parsed query."""

    terms: tuple[Term, ...]
    """What a run must contain: at least one term."""
    without: tuple[Term, ...]
    """What it must not contain."""

    @classmethod
    def parse(cls, text: str) -> Query:
        """Parse what a person wrote: `words`, `"a phrase"` and `-without`.

        Raises:
            BadRequest: There is no word without `-`, or there are too many.
        """
        terms: list[Term] = []
        without: list[Term] = []
        for found in _TERM.finditer(text):
            minus, phrase, closed, word = found.groups()
            is_last = found.end() == len(text) and not closed and not minus
            term = Term.parse(phrase if word is None else word, is_last)
            if term.words:
                (without if minus else terms).append(term)
        if not terms:
            raise BadRequest("The search needs a word or a phrase without a minus.")
        if len(terms) + len(without) > MOST_TERMS:
            raise BadRequest(f"A search has at most {MOST_TERMS} words and phrases.")
        return cls(tuple(terms), tuple(without))

    @property
    def weight(self) -> int:
        """An even number that grows with the terms: a phrase counts more than a word."""
        return 2 * sum(len(term.words) for term in {*self.terms})

    def find(self, stored: str) -> Found | None:
        """Return where a stored text contains terms of this query; None if it has none."""
        if stored.isascii() and "\\u" not in stored:  # most texts are discarded here
            lower = stored.lower()
            if not any(max(term.words, key=len) in lower for term in self.terms):
                return None
        text = plain_text(stored)
        words = f" {words_of(text)} "
        found = [
            (term, at)
            for term in self.terms
            for at in islice(term.numbers_in(words), _MOST_MATCHES)
        ]
        if not found:
            return None
        begins, places = places_of(text)
        matches = []
        for term, at in found:
            end = begins[at + len(term.words) - 1] + len(term.words[-1])
            matches.append((places[begins[at]], places[end], term))
        return Found(text, sorted(matches, key=lambda match: match[:2]))


_MOST_MATCHES = 50


@dataclass(frozen=True)
class Found:
    """The places of a query's terms in a text."""

    text: str
    matches: list[tuple[int, int, Term]]
    """Begin, end and term, in order."""

    @property
    def weight(self) -> int:
        """The `Query.weight` of the terms that the text contains."""
        return 2 * sum(len(term.words) for term in {term for _, _, term in self.matches})

    def snippet(self) -> list[SnippetPart]:
        """Return the part of the text with the most terms. The matches are separate parts."""
        first, begun = 0, 0
        for at, (begin, _, _) in enumerate(self.matches):
            limit = begin + SNIPPET_CHARACTERS - _BEFORE
            terms = len({term for _, end, term in self.matches[at:] if end <= limit})
            if terms > first:
                first, begun = terms, begin
        begin = max(0, begun - _BEFORE)
        if begin and (space := self.text.find(" ", begin, begun)) >= 0:
            begin = space + 1
        end = min(len(self.text), begin + SNIPPET_CHARACTERS)
        parts = [("…" if begin else "", False)]
        for first, last, _ in self.matches:
            first, last = max(first, begin), min(last, end)
            if first < last:
                parts += [(self.text[begin:first], False), (self.text[first:last], True)]
                begin = last
        parts += [(self.text[begin:end], False), ("…" if end < len(self.text) else "", False)]
        return [
            SnippetPart(text=re.sub(r"\s+", " ", text), is_match=is_match)
            for text, is_match in parts
            if text
        ]
