"""Two lists of siblings aligned, so that what one has more does not shift the rest; pure.

Takes n log n, however often a name is repeated.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

Key = tuple[object, ...]
"""By what siblings match."""

_Place = tuple[int, int]  # a place among the left siblings, and one among the right


def aligned(
    left: Sequence[T], right: Sequence[T], keys: Sequence[Callable[[T], Key | None]]
) -> list[tuple[T | None, T | None]]:
    """Return all siblings in order, those that match in pairs; no match crosses another.

    Args:
        left: The siblings of one side.
        right: Those of the other.
        keys: By what they match: first by the first of these, then between the matches by the next.
            Of several with one key the first matches the first. None matches nothing.
    """
    matches: list[_Place] = []
    for key_of in keys:
        matches = _matched_between(left, right, matches, key_of)
    pairs: list[tuple[T | None, T | None]] = []
    i = j = 0
    for match_i, match_j in [*matches, (len(left), len(right))]:
        pairs += [(sibling, None) for sibling in left[i:match_i]]
        pairs += [(None, sibling) for sibling in right[j:match_j]]
        if match_i < len(left):
            pairs.append((left[match_i], right[match_j]))
        i, j = match_i + 1, match_j + 1
    return pairs


def _matched_between(
    left: Sequence[T],
    right: Sequence[T],
    matches: list[_Place],
    key_of: Callable[[T], Key | None],
) -> list[_Place]:
    """Return the matches with more of them, by one key, between each two."""
    more: list[_Place] = []
    start_i = start_j = 0
    for match_i, match_j in [*matches, (len(left), len(right))]:
        ours = _numbered(left, range(start_i, match_i), key_of)
        theirs = _numbered(right, range(start_j, match_j), key_of)
        more += _longest_chain({key: (ours[key], theirs[key]) for key in ours if key in theirs})
        if match_i < len(left):
            more.append((match_i, match_j))
        start_i, start_j = match_i + 1, match_j + 1
    return more


def _numbered(
    siblings: Sequence[T], places: range, key_of: Callable[[T], Key | None]
) -> dict[Key, int]:
    """Return places by key, each key with how many were before that have it too."""
    seen: Counter[Key] = Counter()
    found: dict[Key, int] = {}
    for place in places:
        key = key_of(siblings[place])
        if key is not None:
            found[*key, seen[key]] = place
            seen[key] += 1
    return found


def _longest_chain(candidates: dict[Key, _Place]) -> list[_Place]:
    """Return the most of the candidates that do not cross each other, in order.

    Which of several longest chains does not depend on which side is the left one.
    """
    ends: list[int] = []  # by length of chain, the least right place that one ends in
    by_length: defaultdict[int, list[tuple[int, str, _Place]]] = defaultdict(list)
    for key, (i, j) in sorted(candidates.items(), key=lambda item: item[1]):
        length = bisect_left(ends, j)
        ends[length : length + 1] = [j]
        by_length[length].append((i + j, repr(key), (i, j)))
    chain: list[_Place] = []
    for length in reversed(range(len(ends))):
        fitting = (
            each
            for each in by_length[length]
            if not chain or (each[2][0] < chain[-1][0] and each[2][1] < chain[-1][1])
        )
        chain.append(min(fitting)[2])
    return chain[::-1]
