"""The notice about a server's first key.

Once this key exists, the server rejects requests without a key.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

from tracer.records.access import Scope


def first_key_notice(closed: Sequence[str]) -> str:
    """Return a text that explains what the first key changes and what to do next.

    Args:
        closed: The projects that have runs but no key. After the first key of the server, nobody
            can use such a project until it has a key.
    """
    lines = [
        "This is the first key of the server. From now on, every request needs a key, in every "
        "project; a request without one gets 401. Sign in with a key in the viewer, and set "
        "TRACER_API_KEY for programs that record."
    ]
    if closed:
        lines.append(
            "These projects have runs and no key yet. They cannot be read or recorded to until "
            "each has one:"
        )
        lines += [f"  {_create_admin_key(each)}" for each in closed]
    return "\n".join(lines)


def unreadable_notice(project: str, scopes: Collection[Scope]) -> str | None:
    """Return a warning if a first key with these scopes cannot read; None if it can."""
    if Scope.READ in scopes or Scope.ADMIN in scopes:
        return None
    return (
        "This key cannot read, and the server has no other key: the viewer and the API now reject "
        f"every reader. Create a key that can read: {_create_admin_key(project)}"
    )


def _create_admin_key(project: str) -> str:
    return f"tracer keys create NAME --scope admin --project {shlex.quote(project)}"
