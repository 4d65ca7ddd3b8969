"""A run that fails two sub-agents deep, as a program without a framework records it by hand.

Only the answers of the model are made up. The exception of `http_get` passes through all agents.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID

import tracer
from tracer import Tracing

QUESTION = "Why was I charged twice for invoice INV-00042? Please fix it."
_PAYMENTS = "All payments of customer-42 in October"
_STATEMENT = "Statement of October"

SECONDS_PER_TOKEN = 0.005
TIMEOUT_SECONDS = 0.5


def record_failure(url: str, api_key: str) -> UUID:
    """Record the run to a server, and return its id. This takes a second."""
    with tracer.connect(url, api_key=api_key) as tracing:
        run = tracing.plan(
            QUESTION,
            agent="billing",
            request=QUESTION,
            session_id="conv-7781",
            tags=["billing"],
        )
        try:
            with run:
                _answer_as_billing(tracing)
        except TimeoutError:
            pass  # recorded
    return run.root_plan_id


def _answer_as_billing(tracing: Tracing) -> None:
    invoice, ledger = _think(
        tracing,
        QUESTION,
        "I look up the invoice and ask the ledger for its payments.",
        {"get_invoice": {"invoice": "INV-00042"}, "ask_ledger": {"question": _PAYMENTS}},
        (812, 77),
    )
    with invoice:
        invoice.finish({"invoice": "INV-00042", "total": "129.00 EUR"})
    with ledger, tracing.plan(_PAYMENTS, agent="ledger", request=_PAYMENTS):
        _answer_as_ledger(tracing)


def _answer_as_ledger(tracing: Tracing) -> None:
    query = "select * from payments where customer = 42"
    calls = {"sql": {"query": query}, "ask_bank": {"question": _STATEMENT}}
    sql, bank = _think(tracing, _PAYMENTS, "", calls, (288, 21))
    with sql:
        sql.finish("400 rows")
    with bank, tracing.plan(_STATEMENT, agent="bank", request=_STATEMENT):
        url = "https://bank.example/api/v2/statements?month=2026-10"
        [get] = _think(
            tracing, _STATEMENT, "Fetching the statement.", {"http_get": {"url": url}}, (132, 11)
        )
        with get:
            time.sleep(TIMEOUT_SECONDS)
            raise TimeoutError(
                f"bank.example did not answer within {TIMEOUT_SECONDS} s: GET /api/v2/statements"
            )


def _think(
    tracing: Tracing,
    request: str,
    text: str,
    calls: Mapping[str, Mapping[str, str]],
    tokens: tuple[int, int],
) -> list[Any]:
    """Record one answer of the model; return the tool calls that it chose."""
    messages = [{"role": "user", "content": request}]
    with tracing.think_act(messages, model="gpt-5-mini", provider="openai") as thought:
        time.sleep(SECONDS_PER_TOKEN * tokens[1])
        return thought.finish(
            text, input_tokens=tokens[0], output_tokens=tokens[1], tool_calls=list(calls.items())
        )
