"""Search: words, queries, and an index (Tantivy) that is derived from the database.

The index may be deleted at any time. `Follower` keeps it equal to what a `Source` returns, and
`SearchIndex` answers queries from it with the ids of runs. Nothing here knows the database.
"""

from tracer.search.follower import ChangedRun, Follower
from tracer.search.index import (
    CUT,
    OPEN,
    WHOLE,
    Hit,
    ProjectState,
    RunDocument,
    SearchDirectory,
    SearchIndex,
    term,
)
from tracer.search.queries import Query
from tracer.search.words import plain_text

__all__ = [
    "CUT",
    "OPEN",
    "WHOLE",
    "ChangedRun",
    "Follower",
    "Hit",
    "ProjectState",
    "Query",
    "RunDocument",
    "SearchDirectory",
    "SearchIndex",
    "plain_text",
    "term",
]
