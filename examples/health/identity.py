"""Who a caller's token stands for."""

from __future__ import annotations

from health.arguments import storable_text

MAX_CHARACTERS = 200


async def user_of(token_id: str) -> str | None:
    """Return the id of the user that a token stands for; None where it belongs to no user.

    Today the token is the user's id. When a business system issues tokens, it is asked here, and
    nothing else changes: tools get the user's id, and models neither.

    Args:
        token_id: What the caller showed.
    """
    try:
        user_id = storable_text(token_id)
    except ValueError:
        return None
    return user_id if len(user_id) <= MAX_CHARACTERS else None
