"""Recipes: how to make a random secret of a form.

A recipe is text with fields in braces: an alphabet, and a length or a range of lengths. `ghp_{A36}`
makes `ghp_` and 36 random letters and digits. Fields without a length are listed in `_WHOLE`.
"""

from __future__ import annotations

import base64
import re
import uuid
from collections.abc import Callable
from random import Random
from string import ascii_letters, ascii_lowercase, ascii_uppercase, digits

ALPHABETS = {
    "A": ascii_letters + digits,
    "a": ascii_lowercase + digits,
    "U": ascii_uppercase + digits,
    "B": ascii_uppercase + "234567",  # base32, RFC 4648
    "d": digits,
    "n": digits[1:],
    "h": digits + "abcdef",
    "H": digits + "ABCDEF",
    "w": ascii_letters + digits + "-_",  # base64url, RFC 4648
    "b": ascii_letters + digits + "+/",
    "l": ascii_lowercase,
    "c": "023456789acdefghjklmnpqrstuvwxyz".upper(),  # bech32, BIP 173
}
"""The characters of each alphabet, by the letter that names it in recipes."""

_FIELD = re.compile(
    r"\{([a-zA-Z])([0-9]+)(?:-([0-9]+))?\}|\{(uuid|json|basic|lines|card|card_by_fours|amex)\}"
)


def _json(random: Random) -> str:
    """Return a random JSON object in base64url, as in a JWT."""
    text = f'{{"sub":"{made("{a12-30}", random)}"}}'
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _basic(random: Random) -> str:
    """Return a random name and password in base64, as in RFC 7617."""
    return base64.b64encode(made("{l5-9}:{A10-16}", random).encode()).decode()


def _card(beginning: str, length: int, random: Random) -> str:
    """Return a random card number with a valid check digit, ISO/IEC 7812-1."""
    number = beginning + made(f"{{d{length - len(beginning) - 1}}}", random)
    digits = [int(each) for each in reversed(number)]
    doubled = (sum(divmod(2 * each, 10)) for each in digits[::2])
    return number + str(-(sum(doubled) + sum(digits[1::2])) % 10)


def _by_fours(random: Random) -> str:
    number = _card("4", 16, random)
    return " ".join(number[at : at + 4] for at in range(0, 16, 4))


def _amex(random: Random) -> str:
    number = _card("37", 15, random)
    return f"{number[:4]} {number[4:10]} {number[10:]}"


_WHOLE: dict[str, Callable[[Random], str]] = {
    "uuid": lambda random: str(uuid.UUID(int=random.getrandbits(128), version=4)),
    "json": _json,
    "basic": _basic,
    "lines": lambda random: "\n".join(made("{b64}", random) for _ in range(6)),
    "card": lambda random: _card("4", 16, random),
    "card_by_fours": _by_fours,
    "amex": _amex,
}


def made(recipe: str, random: Random) -> str:
    """Return a random secret of a recipe's form."""

    def field(match: re.Match[str]) -> str:
        if match[4]:
            return _WHOLE[match[4]](random)
        length = random.randint(int(match[2]), int(match[3] or match[2]))
        return "".join(random.choices(ALPHABETS[match[1]], k=length))

    return _FIELD.sub(field, recipe)
