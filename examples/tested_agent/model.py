"""A script in place of a language model. It chooses the calls of each agent."""

from __future__ import annotations

from datetime import date
from typing import NamedTuple


class Turn(NamedTuple):
    """One answer of the model: a text, and calls as names and arguments."""

    text: str
    calls: tuple[tuple[str, dict[str, str]], ...] = ()


def conversation(agent: str, today: date) -> list[Turn]:
    """Return the answers for an agent."""
    if agent == "bookkeeper":
        return [
            Turn("I read the ledger.", (("read_ledger", {"invoice": "INV-42"}),)),
            Turn("Yes, INV-42 was paid."),
        ]
    return [
        Turn("I look the invoice up.", (("find_invoice", {"invoice": "INV-42"}),)),
        Turn("Was it paid?", (("ask_bookkeeper", {"question": "Was INV-42 paid?"}),)),
        Turn("It was.", (("refund", {"invoice": "INV-42", "booked_on": str(today)}),)),
        Turn("I tell the customer.", (("notify", {"customer": "Ada"}),)),
        Turn("INV-42 is refunded."),
    ]
