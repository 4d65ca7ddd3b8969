"""Find the user of a caller's token."""

from __future__ import annotations

from health.arguments import storable_text

MAX_CHARACTERS = 200


async def user_of(token_id: str) -> str | None:
    """Return the id of a token's user; None if the token belongs to no user.

    Here the token is the user's id. If a business system issues the tokens, query it here. Nothing
    else has to change: tools receive the user's id, and models receive neither.

    Args:
        token_id: The caller's token.
    """
    try:
        user_id = storable_text(token_id)
    except ValueError:
        return None
    return user_id if len(user_id) <= MAX_CHARACTERS else None
