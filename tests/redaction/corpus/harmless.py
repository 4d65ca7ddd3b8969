"""Harmless texts: real files, and many log-probs and ids."""

from __future__ import annotations

import gzip
import json
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.redaction.corpus.recipes import made

ROOT = Path(__file__).parents[3]

FOLDERS = {
    "virtual environment": Path(sysconfig.get_path("purelib")),
    "node_modules": ROOT / "web" / "node_modules",
    "captures": ROOT / "tests" / "otel",
}
"""Folders of real text files, by their kind."""

_LARGEST = 2_000_000
_TEXT = frozenset(
    ".bin .py .pyi .md .rst .txt .json .toml .cfg .ini .yaml .yml .js .mjs .cjs .ts .mts .css .html"
    " .vue .svg .xml .sh .sql .c .h .jsonl .map".split()
)


_PIECES = re.compile(rb"[\t\n\r\x20-\x7e\x80-\xff]{4,}")


def files_of(kind: str) -> list[Path]:
    """Return the text files of a folder, sorted. Captures are bytes of protobuf with texts."""
    return sorted(
        each
        for each in FOLDERS[kind].rglob("*")
        if Path(each.name.removesuffix(".gz")).suffix in _TEXT
        and each.is_file()
        and each.stat().st_size <= _LARGEST
    )


def text_of(path: Path) -> str:
    """Return the text of a file; of a capture, the texts in it."""
    data = path.read_bytes()
    if path.suffix == ".gz":
        data = gzip.decompress(data)
    if ".bin" in path.suffixes:
        data = b"\n".join(_PIECES.findall(data))
    return data.decode("utf-8", "replace")


_WORDS = "hello the password secret a I'm token key <|end|> 123 Ġworld ▁of \n { api".split(" ")

IDS = (
    *(
        "{uuid}",
        "{h32}",
        "{h16}",
        "{n13}",
        "{n16}",
        "4{d15}",
        "5{d12}",
        "call_{A24}",
        "toolu_{A24}",
    ),
    *("msg_{A24}", "chatcmpl-{A29}", "resp_{h48}", "req_{A24}", "run-{uuid}", "sha256:{h64}"),
    *("0.{d17}", "-{n2}.{d16}", "{n10}.{d6}", "fc_{h32}", "rs_{h50}", "thread_{A24}", "{U26}"),
)
"""Recipes of ids and numbers that are not secrets."""


def log_probs(count: int, random: Random) -> Iterator[str]:
    """Yield JSON texts of a model's log-probs, as OpenAI's API returns them."""
    for _ in range(0, count, 1000):
        content = [
            {
                "token": (token := random.choice(_WORDS)),
                "logprob": -random.random() * 20,
                "bytes": list(token.encode()),
                "top_logprobs": [{"token": token, "logprob": -random.random(), "bytes": None}],
            }
            for _ in range(1000)
        ]
        yield json.dumps({"logprobs": {"content": content}})


def ids(count: int, random: Random) -> Iterator[str]:
    """Yield texts of ids and numbers, half of them JSON."""
    for at in range(0, count, 1000):
        values = [made(random.choice(IDS), random) for _ in range(1000)]
        yield json.dumps({"ids": values}) if at % 2000 else "\n".join(values)


FALSE_FINDINGS = (
    *("CREATE INDEX pk_orders_customer_id_created ON orders (customer_id, created)",),
    *('lastToken = "?JSX"', "type LiteralToken = NumericLiteral | BigIntLiteral;"),
    *('token: "extends" | "implements"', "password?: OAuthFlowObject;", "(token: TKind): Token"),
    *('"js-cookie": "^3.0.5"', '{"secret_santa": "Bob", "cookie_recipe": "butter, sugar"}'),
    *("locale/sk-SK-translation.json", "rk-very-long-kebab-case", "a task-management-system"),
    *('{"token":"hello","logprob":-0.25,"bytes":[104]}', '{"next_page_token": "CAUQAA"}'),
    *('{"continuation_token": "abc123"}', '{"token_id": 50256}', '{"api_key_id": "key_7"}'),
    *("self.password = password", "token: Token", "token = next(tokens)", "key, secret = pair()"),
    *("password = getpass()", "secret = secrets[0]", "async def login(token: str) -> None:"),
    *("The password is on the second page.", "token: the smallest unit that a model reads"),
    *("4111111111111111", "5901234123457", "4012888888881881 is an order", "0.4111111111111111"),
    *("password=<password>", "password: ${DB_PASSWORD}", "token={{ token }}", 'password: "***"'),
    *('password=""', "api_key: null", "Bearer token_of_the_user", "mailto:user@host"),
)
"""Texts that earlier versions masked although they contain no secret."""
