"""Lineage: rows of a run → its tree, with totals and the origins of failures.

All functions are pure. A store reads the rows (`TreeRows`), and `build_tree` links each record to
its parent. It terminates and returns each record once, even if records form a cycle.

Public modules:

- `tree`: the rows and nodes of a tree, one class for each kind of record
- `diff`: the comparison of two trees
- `links`: which run continues which
"""

from tracer.lineage.tree import PAYLOAD_FIELDS, Payloads, Revision, Row, TreeRows, build_tree

__all__ = [
    "PAYLOAD_FIELDS",
    "Payloads",
    "Revision",
    "Row",
    "TreeRows",
    "build_tree",
]
