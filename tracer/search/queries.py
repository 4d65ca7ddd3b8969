"""Queries: words that a run's texts must and must not contain, and where a text contains them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from tracer.errors import BadRequest
from tracer.records.pages import SnippetPart
from tracer.search.words import (
    LONGEST_WORD,
    edge,
    gap,
    is_unspaced,
    pairs_of,
    pieces_of,
    placed_fold,
    plain_text,
)

FEWEST_CHARACTERS = 3
"""The last word of a query matches words that begin with it if it has this many characters."""

MOST_TERMS = 20
SNIPPET_CHARACTERS = 180
_BEFORE = 50

_TERM = re.compile(r'(-?)(?:"([^"]*)("?)|([^\s"]+))')


@dataclass(frozen=True)
class Term:
    """A word or a phrase of a query."""

    pieces: tuple[str, ...]
    """Folded words, and sequences of scripts without spaces. They must follow each other."""
    is_prefix: bool
    """Whether the last word may be the beginning of a longer one."""

    @cached_property
    def words(self) -> tuple[tuple[int, str, bool], ...]:
        """The words of the index: their positions, and whether each is only a beginning."""
        words: list[tuple[int, str, bool]] = []
        position = 0
        for number, piece in enumerate(self.pieces):
            if is_unspaced(piece):
                if len(piece) == 1:
                    words.append((position, piece, True))
                words += [(position + n, pair, False) for n, pair in enumerate(pairs_of(piece))]
                position += len(piece)
            else:
                is_last = number == len(self.pieces) - 1
                words.append((position, piece[:LONGEST_WORD], self.is_prefix and is_last))
                position += 1
        return tuple(words)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches the term in a folded text."""
        parts = []
        for number, piece in enumerate(self.pieces):
            is_begun = len(piece) >= LONGEST_WORD
            is_begun |= self.is_prefix and number == len(self.pieces) - 1
            if is_unspaced(piece):
                parts.append(re.escape(piece))
            else:
                end = "" if is_begun else edge(after=True)
                parts.append(edge(after=False) + re.escape(piece[:LONGEST_WORD]) + end)
        return re.compile(gap().join(parts), re.DOTALL)


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
            pieces = tuple(pieces_of(phrase if word is None else word))
            if not pieces:
                continue
            is_last = found.end() == len(text) and not closed
            is_prefix = is_last and not minus and len(pieces[-1]) >= FEWEST_CHARACTERS
            term = Term(pieces, is_prefix and not is_unspaced(pieces[-1]))
            (without if minus else terms).append(term)
        if not terms:
            raise BadRequest("The search needs a word or a phrase without a minus.")
        if len(terms) + len(without) > MOST_TERMS:
            raise BadRequest(f"A search has at most {MOST_TERMS} words and phrases.")
        return cls(tuple(terms), tuple(without))

    def find(self, stored: str) -> Found | None:
        """Return where a stored text contains terms of this query; None if it has none."""
        text = plain_text(stored)
        folded, places = placed_fold(text)
        matches = [
            (places[found.start()], places[found.end()], number)
            for number, term in enumerate(self.terms)
            for found in _some(term.pattern, folded)
        ]
        return Found(text, tuple(sorted(matches))) if matches else None


_MOST_MATCHES = 50


def _some(pattern: re.Pattern[str], folded: str) -> Iterator[re.Match[str]]:
    for number, found in enumerate(pattern.finditer(folded)):
        if number == _MOST_MATCHES:
            return
        yield found


@dataclass(frozen=True)
class Found:
    """The places of a query's terms in a text."""

    text: str
    matches: tuple[tuple[int, int, int], ...]
    """Begin, end and number of the term, in order."""

    @property
    def terms(self) -> int:
        """How many terms of the query the text contains."""
        return len({number for _, _, number in self.matches})

    def snippet(self) -> list[SnippetPart]:
        """Return the part of the text with the most terms. The matches are separate parts."""
        first, begun = 0, 0
        for at, (begin, _, _) in enumerate(self.matches):
            limit = begin + SNIPPET_CHARACTERS - _BEFORE
            terms = len({number for _, end, number in self.matches[at:] if end <= limit})
            if terms > first:
                first, begun = terms, begin
        begin = max(0, begun - _BEFORE)
        if begin and (space := self.text.find(" ", begin, begun)) >= 0:
            begin = space + 1
        end = min(len(self.text), begin + SNIPPET_CHARACTERS)
        parts = _parts(self.text, begin, end, self.matches)
        if begin:
            parts.insert(0, SnippetPart(text="…", is_match=False))
        if end < len(self.text):
            parts.append(SnippetPart(text="…", is_match=False))
        return parts


def _parts(
    text: str, begin: int, end: int, matches: Sequence[tuple[int, int, int]]
) -> list[SnippetPart]:
    parts: list[SnippetPart] = []
    at = begin
    for first, last, _ in matches:
        first, last = max(first, at), min(last, end)
        if first >= last:
            continue
        if first > at:
            parts.append(SnippetPart(text=_line(text[at:first]), is_match=False))
        parts.append(SnippetPart(text=_line(text[first:last]), is_match=True))
        at = last
    if at < end:
        parts.append(SnippetPart(text=_line(text[at:end]), is_match=False))
    return parts


def _line(text: str) -> str:
    return re.sub(r"\s+", " ", text)
