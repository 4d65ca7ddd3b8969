"""Normalize the names of models, so that each spelling finds the model's price.

Resellers, gateways and SDKs add prefixes (`vertex_ai/`, `models/`, an ARN) and suffixes (`@date`,
`-latest`, `-v1:0`) to the names that their makers use.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_PROVIDERS = {
    "az.ai.inference": "azure",
    "az.ai.openai": "azure",
    "azure.ai.inference": "azure",
    "azure.ai.openai": "azure",
    "azure_ai": "azure",
    "azure_openai": "azure",
    "azureopenai": "azure",
    "amazon": "aws",
    "amazon_bedrock": "aws",
    "amazon.bedrock": "aws",
    "aws.bedrock": "aws",
    "aws_bedrock": "aws",
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "converse": "aws",
    "claude": "anthropic",
    "cohere_chat": "cohere",
    "fireworks_ai": "fireworks",
    "gcp.gemini": "google",
    "gcp.gen_ai": "google",
    "gcp.vertex_ai": "google",
    "gemini": "google",
    "google_genai": "google",
    "google-genai": "google",
    "google_gla": "google",
    "google-gla": "google",
    "google_vertexai": "google",
    "google-vertex": "google",
    "google-vertexai": "google",
    "vertex": "google",
    "vertex_ai": "google",
    "vertexai": "google",
    "mistral_ai": "mistral",
    "mistralai": "mistral",
    "moonshot": "moonshotai",
    "openai-chat": "openai",
    "openai-responses": "openai",
    "open_router": "openrouter",
    "text-completion-openai": "openai",
    "together_ai": "together",
    "togetherai": "together",
    "x_ai": "x-ai",
    "xai": "x-ai",
}
"""The provider's name in the price list, by its names in conventions, gateways and SDKs."""
_LISTED = frozenset(
    (
        *("anthropic", "aws", "azure", "cerebras", "cohere", "deepseek", "fireworks", "google"),
        *("groq", "meta", "minimax", "mistral", "moonshotai", "novita", "openai", "openrouter"),
        *("perplexity", "together", "voyageai", "x-ai", "zai"),
    )
)
"""Providers of the price list that occur as the prefix of a model's name."""
_OWN_COMPUTERS = frozenset(
    (
        *("ollama", "lmstudio", "lm_studio", "vllm", "hosted_vllm", "llama.cpp", "llamacpp"),
        *("local", "llamafile", "mlx", "sglang", "localai", "ollama_chat"),
    )
)
"""Programs that run models on the user's own computers. Their models have no price."""
_ARN = re.compile(r"arn:[^:]*:bedrock:[^:]*:[^:]*:[^/]+/(.+)")
_PATH = re.compile(r"(?:.*/)?publishers/([^/]+)/models/(.+)")
_BEDROCK = re.compile(r"(?:[a-z]+\.)?(ai21|amazon|anthropic|cohere|meta|mistral)\.([a-z].*)")
"""The names of models in Amazon Bedrock: an optional region, the maker and the model. If no
provider is stated, the maker's own price applies, because Bedrock's differs by region."""
_SUFFIXES = re.compile(r"(?:@[\w.-]+|:[a-z]\w*|-v\d+(?::\d+\w*)?|[-_](?:latest|preview|exp))$")
_DATE = re.compile(r"-(?:20\d{6}|20\d\d-\d\d-\d\d|\d\d-\d\d(?:-20\d\d)?|\d{4})$")
_MOST_SUFFIXES = 3


def provider_name(provider: str) -> str:
    """Return the name of a provider in the price list; `provider` itself if it is unknown."""
    name = provider.lower().partition("/")[0]
    for each in (name, name.removesuffix(".chat").removesuffix(".messages")):
        if each in _PROVIDERS:
            return _PROVIDERS[each]
    # The AI SDK writes `openai.responses`, `anthropic.messages` and `google.generative-ai`.
    first = name.partition(".")[0]
    return first if first in _LISTED else _PROVIDERS.get(first, provider)


def spellings(model: str, provider: str | None) -> Iterator[tuple[str, str | None]]:
    """Yield names of a model with its provider, in the order in which a price is looked for.

    The name as it was recorded comes first, then it without what resellers add to it. The prefix of
    a name replaces a provider that is missing or is a gateway.
    """
    if provider is not None and provider.lower() in _OWN_COMPUTERS:
        return
    seller = provider_name(provider) if provider is not None else None
    name, maker = _without_prefixes(model)
    if maker in _OWN_COMPUTERS:
        return
    sellers = dict.fromkeys((seller, maker)) if maker is not None else (seller,)
    yield model, seller
    for _ in range(_MOST_SUFFIXES):
        for each in sellers:
            yield name, each
        shorter = _SUFFIXES.sub("", name)
        shorter = _DATE.sub("", name) if shorter == name else shorter
        if shorter == name or not shorter:
            return
        name = shorter
    for each in sellers:
        yield name, each


def _without_prefixes(model: str) -> tuple[str, str | None]:
    """Return a model's name without paths and prefixes, and the provider that they name."""
    name, maker = model.strip(), None
    if (arn := _ARN.fullmatch(name)) is not None:
        name, maker = arn[1], "aws"
    if (path := _PATH.fullmatch(name)) is not None:
        return path[2], provider_name(path[1])
    name = name.rpartition("/")[2] if name.startswith("projects/") else name
    while True:
        head, separator, rest = name.partition("/")
        if not separator and not _BEDROCK.fullmatch(name):
            head, _, rest = name.partition(":")
        if not rest:
            of_bedrock = _BEDROCK.fullmatch(name) if maker is None else None
            if of_bedrock is None:
                return name, maker
            return (of_bedrock[2], of_bedrock[1]) if of_bedrock[1] in _LISTED else (name, "aws")
        prefix = head.lower()
        if prefix in _OWN_COMPUTERS:
            return rest, prefix
        provider = _PROVIDERS.get(prefix, prefix)
        if provider in _LISTED:
            maker = provider if maker is None else maker
        elif prefix not in ("models", "litellm", "litellm_proxy", "tunedmodels"):
            return name, maker
        name = rest
