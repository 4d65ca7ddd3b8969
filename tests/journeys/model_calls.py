"""Runs of one agent with twelve model calls, and checks of the details of the twelfth."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.runnables import Runnable
from langchain_core.tools import tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from playwright.async_api import Locator, Page, expect

from tests.adapters.langchain_agents import Says, chooses, new_agent
from tests.journeys.tree_page import details
from tests.otel import made_traces
from tracer import connect
from tracer.adapters import langchain
from tracer.clock import utc_now
from tracer.records import new_id

REQUEST = "Summarise my open invoices as a table"
RESULT_OF_PAGE_10 = re.compile(r'result of list_invoices \{"page": ?10\}')
TEMPERATURE = re.compile(r'"temperature": ?0\.2')
PAGES = 12
"""How many pages the agent reads, one after each of its first model calls."""


async def expect_new_first(page: Page) -> Locator:
    """Expect that the details of the twelfth call show its new messages within one screen.

    Returns:
        The link to the tool call that the model chose.
    """
    shown = details(page)
    await expect(shown.get_by_role("heading", name="New since LLM call 11")).to_be_in_viewport()
    await expect(shown).to_contain_text(RESULT_OF_PAGE_10)
    await expect(shown.get_by_text("I read page 11.")).to_be_in_viewport()
    chosen = shown.get_by_role("list", name="Tools it called").get_by_role("link")
    await expect(chosen).to_be_in_viewport()
    await expect(shown.get_by_text("22 earlier messages")).to_be_in_viewport()
    await expect(shown.get_by_text("4 tools offered")).to_be_in_viewport()
    for fact in ("gpt-5-mini", "openai", "tool_calls", TEMPERATURE):
        await expect(shown.get_by_role("definition").filter(has_text=fact)).to_be_in_viewport()
    for kind in ("Input tokens", "Output tokens", "Cached input", "Reasoning tokens"):
        await expect(shown.get_by_role("term").filter(has_text=kind)).to_be_in_viewport()
    return chosen


def lines_of(page: int) -> str:
    """Return the invoices on one page, longer than a screen."""
    return "\n".join(
        f"Line {line}: invoice INV-{40 * page + line:05}, total {13.37 * line:.2f} EUR"
        for line in range(40)
    )


# --- LangChain ---------------------------------------------------------------------------------


class _Offers(Says):
    """A model that passes its parameters and tools on as OpenAI's does."""

    temperature: float = 0.2

    def bind_tools(self, tools: Sequence[Any], **options: Any) -> Runnable[Any, AIMessage]:
        return self.bind(tools=[convert_to_openai_tool(each) for each in tools], **options)

    @property
    def _identifying_params(self) -> dict[str, Any]:
        return {"temperature": self.temperature}

    def _get_ls_params(self, stop: list[str] | None = None, **options: Any) -> Any:
        return {**super()._get_ls_params(stop, **options), "ls_provider": "openai"}


def _answer(messages: list[BaseMessage]) -> AIMessage:
    page = sum(isinstance(each, AIMessage) for each in messages)
    if page == PAGES:
        said, reason = AIMessage("13.37 EUR"), "stop"
    else:
        said = chooses(("list_invoices", {"page": page}, f"call_{page}"))
        said.content, reason = f"I read page {page}.", "tool_calls"
    said.response_metadata = {"finish_reason": reason, "model_name": "gpt-5-mini"}
    said.usage_metadata = UsageMetadata(
        input_tokens=900 + 170 * page,
        output_tokens=77,
        total_tokens=977 + 170 * page,
        input_token_details={"cache_read": 450},
        output_token_details={"reasoning": 25},
    )
    return said


@tool
def list_invoices(page: int) -> str:
    """Lists the invoices on a page."""
    return lines_of(page)


@tool
def get_invoice(number: str) -> str:
    """Reads an invoice."""
    return number


@tool
def refund(number: str) -> str:
    """Pays an invoice back."""
    return number


@tool
def ask_ledger(question: str) -> str:
    """Asks the ledger."""
    return question


def run_langchain(address: str) -> None:
    """Run an agent of LangChain's, recorded on a server by the native adapter."""
    model: BaseChatModel = _Offers(answer=_answer)
    agent = new_agent(
        model,
        [list_invoices, get_invoice, refund, ask_ledger],
        name="billing",
        system_prompt="You are **billing**. Answer with tables.",
    )
    with connect(address) as tracing:
        uninstall = langchain.install(tracing)
        try:
            agent.invoke({"messages": [HumanMessage(REQUEST)]}, {"recursion_limit": 100})
        finally:
            uninstall()


# --- OTLP --------------------------------------------------------------------------------------


def otlp_body() -> tuple[UUID, bytes]:
    """Return a trace with GenAI attributes: its id, and the body of a request with its spans."""
    trace_id, began = new_id(), utc_now().timestamp()
    messages: list[dict[str, Any]] = [_message("user", type="text", content=REQUEST)]
    spans = [made_traces.agent(1, "billing", asked=REQUEST, at=(began, began + 100))]
    for page in range(PAGES):
        call = {
            "type": "tool_call",
            "id": f"call_{page}",
            "name": "list_invoices",
            "arguments": json.dumps({"page": page}),
        }
        said = {
            "role": "assistant",
            "parts": [{"type": "text", "content": f"I read page {page}."}, call],
            "finish_reason": "tool_calls",
        }
        at = began + 4 * page
        asked = made_traces.make_span(
            2 + 2 * page, "chat gpt-5-mini", _asked(messages, said, page), parent=1, at=(at, at + 1)
        )
        ran = made_traces.tool(
            3 + 2 * page,
            "list_invoices",
            str(call["arguments"]),
            str(call["id"]),
            parent=1,
            at=(at + 2, at + 3),
        )
        spans += [asked, ran]
        result = {"type": "tool_call_response", "id": call["id"], "response": lines_of(page)}
        messages = [*messages, said, _message("tool", **result)]
    return trace_id, made_traces.body_of(*({**span, "traceId": trace_id.hex} for span in spans))


def _message(role: str, **part: Any) -> dict[str, Any]:
    return {"role": role, "parts": [part]}


def _asked(messages: list[dict[str, Any]], said: dict[str, Any], page: int) -> dict[str, Any]:
    offered = ("list_invoices", "get_invoice", "refund", "ask_ledger")
    instructions = [{"type": "text", "content": "You are **billing**. Answer with tables."}]
    return {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5-mini",
        "gen_ai.response.model": "gpt-5-mini",
        "gen_ai.request.temperature": 0.2,
        "gen_ai.tool.definitions": json.dumps(
            [{"type": "function", "name": name, "parameters": {}} for name in offered]
        ),
        "gen_ai.system_instructions": json.dumps(instructions),
        "gen_ai.input.messages": json.dumps(messages),
        "gen_ai.output.messages": json.dumps([said]),
        "gen_ai.response.finish_reasons": ["tool_calls"],
        "gen_ai.usage.input_tokens": 900 + 170 * page,
        "gen_ai.usage.output_tokens": 77,
        "gen_ai.usage.cache_read.input_tokens": 450,
        "gen_ai.usage.reasoning.output_tokens": 25,
    }
