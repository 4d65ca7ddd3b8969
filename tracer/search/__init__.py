"""Search: words, queries, and an index (Tantivy) that is derived from the database.

The index may be deleted at any time. `Follower` keeps it equal to what a `Source` returns, and
`SearchIndex` answers queries from it with the ids of runs. Nothing here knows the database.
"""

from tracer.search.follower import ChangedRun, Follower, Source
from tracer.search.index import (
    OPEN,
    WHOLE,
    Hit,
    IndexState,
    RunDocument,
    SearchDirectory,
    SearchIndex,
    SearchProgress,
    term,
)
from tracer.search.queries import Found, Query
from tracer.search.words import LONGEST_WORD, plain_text, words_of

__all__ = [
    "LONGEST_WORD",
    "OPEN",
    "WHOLE",
    "ChangedRun",
    "Follower",
    "Found",
    "Hit",
    "IndexState",
    "Query",
    "RunDocument",
    "SearchDirectory",
    "SearchIndex",
    "SearchProgress",
    "Source",
    "plain_text",
    "term",
    "words_of",
]
