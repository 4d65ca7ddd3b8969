"""A hundred spellings of models' names find the price of the model."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from tracer.records.prices import TokenUsage, cost_of

A_THOUSAND_EACH = TokenUsage(1000, 1000)
# Some prices change with the date, and DeepSeek's are lower in the evening.
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)

SPELLINGS = {
    "0.0028": [  # gemini-2.5-flash
        *("gemini-2.5-flash", "models/gemini-2.5-flash", "vertex_ai/gemini-2.5-flash"),
        *("gemini/gemini-2.5-flash", "google/gemini-2.5-flash", "google-gla:gemini-2.5-flash"),
        *("google-vertex:gemini-2.5-flash", "google_genai:gemini-2.5-flash"),
        *("publishers/google/models/gemini-2.5-flash", "vertexai/gemini-2.5-flash"),
        "projects/p/locations/us-central1/publishers/google/models/gemini-2.5-flash",
        *("vertex_ai/models/gemini-2.5-flash", "litellm/gemini/gemini-2.5-flash"),
        *("gemini-2.5-flash @ gcp.gemini", "gemini-2.5-flash @ gcp.vertex_ai"),
        *("gemini-2.5-flash @ gcp.gen_ai", "gemini-2.5-flash @ vertex_ai"),
        *("gemini-2.5-flash @ google.generative-ai", "gemini-2.5-flash @ google.vertex.chat"),
        *("models/gemini-2.5-flash @ gcp.gemini", "vertex_ai/gemini-2.5-flash @ vertex_ai"),
        *("gemini-2.5-flash-latest", "gemini-2.5-flash@001", "google/gemini-2.5-flash @ litellm"),
        *("google/gemini-2.5-flash @ openrouter", "openrouter/google/gemini-2.5-flash"),
    ],
    "0.00225": [  # gpt-5-mini
        *("gpt-5-mini", "openai/gpt-5-mini", "openai:gpt-5-mini", "azure/gpt-5-mini"),
        *("azure_ai/gpt-5-mini", "gpt-5-mini-2025-08-07", "openai/gpt-5-mini-2025-08-07"),
        *("gpt-5-mini @ openai", "gpt-5-mini @ openai.responses", "gpt-5-mini @ openai.chat"),
        *("gpt-5-mini @ azure", "gpt-5-mini @ azure.ai.openai", "gpt-5-mini @ az.ai.openai"),
        *("gpt-5-mini @ azure.ai.inference", "gpt-5-mini @ az.ai.inference"),
        *("gpt-5-mini @ azure_openai", "gpt-5-mini @ AzureOpenAI", "gpt-5-mini @ OpenAI"),
        *("azure/gpt-5-mini @ azure", "openai/gpt-5-mini @ openrouter"),
        *("openai/gpt-5-mini @ my-gateway", "openai/gpt-5-mini @ litellm", "gpt-5-mini @ litellm"),
        *("litellm_proxy/openai/gpt-5-mini", "openrouter/openai/gpt-5-mini"),
        *("openai-responses:gpt-5-mini", "openai-chat:gpt-5-mini", "gpt-5-mini-latest"),
        *("gpt-5-mini-2025-08-07 @ azure", "gpt-5-mini-2025-08-07 @ openai"),
    ],
    "0.018": [  # claude-sonnet-4-5
        *("claude-sonnet-4-5", "anthropic/claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"),
        *("claude-sonnet-4-5-20250929", "claude-sonnet-4-5-latest", "claude-sonnet-4-5@20250929"),
        *("anthropic/claude-sonnet-4-5-20250929", "vertex_ai/claude-sonnet-4-5@20250929"),
        *("claude-sonnet-4-5 @ anthropic", "claude-sonnet-4-5 @ anthropic.messages"),
        *("claude-sonnet-4-5@20250929 @ gcp.vertex_ai", "claude-sonnet-4-5 @ gcp.vertex_ai"),
        "publishers/anthropic/models/claude-sonnet-4-5@20250929",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "anthropic.claude-sonnet-4-5-20250929-v1:0",
        "publishers/anthropic/models/claude-sonnet-4-5@20250929 @ gcp.vertex_ai",
        *("anthropic/claude-sonnet-4-5 @ litellm", "anthropic/claude-sonnet-4-5 @ my-gateway"),
        *("openrouter/anthropic/claude-sonnet-4-5", "claude-sonnet-4-5-20250929 @ litellm"),
        *("x-ai/grok-4", "xai/grok-4", "grok-4 @ xai", "grok-4 @ x_ai", "xai:grok-4"),
    ],
    "0.0198": [  # claude-sonnet-4-5 in one region of Bedrock
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0 @ aws.bedrock",
        "us.anthropic.claude-sonnet-4-5-20250929-v1:0 @ amazon_bedrock",
        "bedrock/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "bedrock/converse/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "bedrock:us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-sonnet-4-5-20250929-v1:0",
        "arn:aws:bedrock:us-east-1:12:inference-profile/us.anthropic.claude-sonnet-4-5-20250929-v1:0",
        "anthropic.claude-sonnet-4-5-20250929-v1:0 @ aws_bedrock",
    ],
    "0.01125": [  # gemini-2.5-pro
        *("gemini-2.5-pro", "gemini/gemini-2.5-pro", "gemini-2.5-pro-preview-05-06"),
        *("models/gemini-2.5-pro @ gcp.gemini", "gemini-2.5-pro-exp @ gcp.gemini"),
    ],
    "0.00138": [  # llama-3.3-70b-versatile of Groq
        *("groq/llama-3.3-70b-versatile", "llama-3.3-70b-versatile @ groq"),
        "groq:llama-3.3-70b-versatile",
    ],
    "0.00137": ["deepseek/deepseek-chat", "deepseek-chat @ deepseek", "deepseek:deepseek-chat"],
    "0.00075": ["mistral/mistral-small-latest", "mistral:mistral-small-latest"],
}
WITHOUT_PRICE = [
    *("gpt-4o @ ollama", "openai/gpt-oss-20b @ ollama", "ollama/llama3", "ollama:llama3"),
    *("hosted_vllm/gpt-4o", "gpt-4o @ vllm", "lmstudio/gpt-4o", "my-own", "my-own @ openai"),
    *("gpt-4o @ my-gateway", "", "/", ":", "models/", "@20250101", "-latest", "a/b/c/d"),
    *("deepseek/deepseek-r1:free", "deepseek/deepseek-r1:free @ openrouter"),
]


def price_of(spelling: str) -> Decimal | None:
    model, _, provider = spelling.partition(" @ ")
    return cost_of(A_THOUSAND_EACH, model, provider=provider or None, at=NOON)


@pytest.mark.parametrize(
    ("spelling", "usd"), [(each, usd) for usd, found in SPELLINGS.items() for each in found]
)
def test_spelling_finds_the_price(spelling: str, usd: str) -> None:
    assert price_of(spelling) == Decimal(usd)


@pytest.mark.parametrize("spelling", WITHOUT_PRICE)
def test_local_and_unknown_models_have_no_price(spelling: str) -> None:
    assert price_of(spelling) is None
