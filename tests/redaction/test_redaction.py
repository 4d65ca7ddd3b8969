"""Redaction of texts: secrets are masked, everything else is unchanged, in linear time."""

from __future__ import annotations

import json
import re
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.canaries import SECRETS
from tracer.errors import TooManySecrets
from tracer.records.masks import MASK, mask, masked_paths
from tracer.redaction import Redaction, configured_keys, configured_patterns
from tracer.redaction.redactor import MAX_SECRETS
from tracer.text import unescape

REDACTION = Redaction()

VALUES_OF_KEYS: list[tuple[str, str | None]] = [
    ('{"password": "hunter2", "n": 1}', '{"password": "[masked: password]", "n": 1}'),
    ('{"a":{"Client-Secret":1234}}', '{"a":{"Client-Secret":"[masked: client_secret]"}}'),
    (r'{"q": "he said \"x\"", "pass_word": "a\"b"}', None),
    (r'{"body":"{\"apiKey\": \"a\\\"b\", \"n\": 1}"}', None),
    (r'{"b":"{\"c\":\"{\\\"token\\\":\\\"a\\\\\\\"b\\\",\\\"n\\\":1}\"}"}', None),
    ('{"credentials": {"user": "a", "keys": ["}"]}, "n": 2}', None),
    ('{"cookies": ["a=1", "b=2"]}', '{"cookies": "[masked: cookie]"}'),
    ('{"n": 4111111111111111}', '{"n": 4111111111111111}'),
    ('{"cardNumber": 4111111111111111}', '{"cardNumber": "[masked: card_number]"}'),
    ('{"n": "pay [4111 1111 1111 1111]"}', '{"n": "pay [[masked: card_number]]"}'),
    ("curl -H 'X-Api-Key: abc' host", "curl -H 'X-Api-Key: [masked: api_key]' host"),
    ("run --password hunter2 --user x", "run --password [masked: password] --user x"),
    ("?access_token=abc&user=x", "?access_token=[masked: token]&user=x"),
    ("{'secret': 'it', 'n': None}", "{'secret': '[masked: secret]', 'n': None}"),
    ('{"half": 1, "password": "hunt', '{"half": 1, "password": "[masked: password]'),
    (
        "Authorization: Basic abc def\nHost: x",
        "Authorization: [masked: authorization]\nHost: x",
    ),
    ("postgres://u:p%40w@host/db", "postgres://u:[masked: url_password]@host/db"),
    ("postgres://u:p@ss@host/db", "postgres://u:[masked: url_password]@host/db"),
    ("Bearer abc12345678", "Bearer [masked: bearer_token]"),
    (
        '[{"op":"compare_and_set","path":["token"],"value":"a1","expected":"b2"}]',
        '[{"op":"compare_and_set","path":["token"],"value":"[masked: token]",'
        '"expected":"[masked: token]"}]',
    ),
    ('name="password"\r\n\r\nhunter2\r\n--x', 'name="password"\r\n\r\n[masked: password]\r\n--x'),
    (
        'headers.set("Authorization", "Bearer x1")',
        'headers.set("Authorization", "[masked: authorization]")',
    ),
    ('[INFO] connect password="hunter2"', '[INFO] connect password="[masked: password]"'),
    ('{{template}} token="abc"', '{{template}} token="[masked: token]"'),
    ('[db]\npassword = "hunter2"', '[db]\npassword = "[masked: password]"'),
    (
        "\x1b[1mpassword\x1b[0m=\x1b[32mhunter2\x1b[0m ok",
        "\x1b[1mpassword\x1b[0m=\x1b[32m[masked: password]\x1b[0m ok",
    ),
    ("\x1b[31mERROR\x1b[0mtoken=abc", "\x1b[31mERROR\x1b[0mtoken=[masked: token]"),
    ("next=%2Fcb%3Ftoken%3Da%20b", "next=%2Fcb%3Ftoken%3D[masked: token]%20b"),
    ("?password=a%20b&n=1", "?password=[masked: password]&n=1"),
    ("İ PASSWORD=hunter2", "İ PASSWORD=[masked: password]"),
    ("\u241b0000 password=a\u241b0000b", "\u241b0000 password=[masked: password]"),
]
"""Texts, and the expected result. None: any JSON with the same keys and a mask."""


def differing(
    table: Iterable[tuple[str, str | None]],
    masked: Callable[[str], str],
    is_right: Callable[[str, str], bool] = lambda text, actual: False,
) -> list[str]:
    """Return a line for each text of a table whose redaction is not the expected one.

    Args:
        table: Texts and their expected redactions.
        masked: Redacts a text.
        is_right: Judges a text and its redaction if the table expects None.
    """
    return [
        f"{text!r}: expected {expected!r}, got {actual!r}"
        for text, expected in table
        if (actual := masked(text)) != expected
        and not (expected is None and is_right(text, actual))
    ]


def test_values_of_secret_keys_are_masked_and_the_rest_is_unchanged() -> None:
    def is_json_with_a_mask(text: str, actual: str) -> bool:
        return set(json.loads(actual)) == set(json.loads(text)) and MASK in actual

    assert differing(VALUES_OF_KEYS, REDACTION.text, is_json_with_a_mask) == []


SPELLINGS: dict[str, Callable[[list[str]], str]] = {
    "snake": lambda words: "_".join(words),
    "shouting": lambda words: "_".join(words).upper(),
    "kebab": lambda words: "-".join(words),
    "header": lambda words: "X-" + "-".join(words).title(),
    "camel": lambda words: words[0] + "".join(each.title() for each in words[1:]),
    "pascal": lambda words: "".join(each.title() for each in words),
    "flat": lambda words: "".join(words),
    "dotted": lambda words: "db.connection." + "_".join(words),
    "with more before": lambda words: "my_" + "_".join(words),
    "numbered": lambda words: "_".join(words) + "2",
}
"""Functions that spell the words of a key, by the name of the style."""

MORE_KEYS = [
    *("pass_word", "passwd", "passwords", "user_password_2", "authorisation", "set_cookie"),
    *("proxy_authorization", "access_token", "refresh_token", "auth_token", "session_token"),
    *("id_token", "webhook_secret", "client_secret_key", "openai_api_key", "credentials"),
]
"""Keys of secrets in addition to `NAMES`."""

NAMES = (
    *("password", "passphrase", "client_secret", "secret", "authorization", "api_key", "token"),
    *("private_key", "access_key", "cookie", "credential"),
)

KEYS_SPELLED = {
    SPELLINGS[spelling](name.split("_"))
    for name in [*NAMES, *MORE_KEYS]
    for spelling in SPELLINGS
    if spelling != "flat" or name in NAMES
}


def with_key(key: str) -> tuple[str, ...]:
    """Return texts in which the value of a key is `canary`, in each supported format."""
    return (
        json.dumps({key: "canary"}),
        json.dumps({"body": json.dumps({key: "canary"})}),
        json.dumps({"a": [{key: ["canary"]}]}, indent=1),
        f'{{"{key}": "canary',
        repr({key: "canary"}),
        f"https://host/?{key}=canary&n=1",
        f"{key}=canary",
        f"{key}: canary",
    )


def test_secret_keys_are_recognised_in_every_spelling_and_format() -> None:
    assert len(KEYS_SPELLED) > 200
    assert [key for key in sorted(KEYS_SPELLED) if REDACTION.rule_of(key) is None] == []
    texts = [text for key in sorted(KEYS_SPELLED) for text in with_key(key)]
    assert [f"{text!r} is not masked" for text in texts if "canary" in REDACTION.text(text)] == []


def test_secret_values_are_masked_in_any_surroundings() -> None:
    surroundings = ("{}", "it is {}, they say", '{{"note": ["{}"]}}', "key={}", "({})")
    table = [
        (around.format(each.text), around.format(each.text.replace(each.hidden, mask(each.rule))))
        for each in SECRETS
        for around in surroundings
    ]
    assert differing(table, REDACTION.text) == []


HARMLESS = [
    '{"inputTokens": 5, "max_tokens": 7, "token_count": 3, "total_tokens": 4, "toolTokens": 1}',
    '{"gen_ai.usage.input_tokens": 5, "llm.token_count.prompt": 7}',
    '{"token": null, "password": "", "secret": false, "cookies": []}',
    '{"properties": {"password": {"type": "string", "maxLength": 8}}, "required": ["x"]}',
    '{"token_url": "https://host/token", "passwordPolicy": "strong"}',
    "def sign_in(password: str, token: str | None = None) -> None: ...",
    "The secret of the cookies, more butter: cookies.",
    "token = next(tokens)",
    "1763800000000000000, 2025-11-22 11:22:33, 0af7651916cd43dd8448eb211c80319c",
    "4111 1111 1111 1112 and 0.4111111111111111 and 41111111-1111-1111-1111-111111111111",
    "a task-management-system-of-ours, at http://host:8080/@user",
    "mailto:user@host, 12:30@noon, http://[::1]:80/",
    "Bearer authentication is explained below",
]


def test_text_without_secrets_is_unchanged() -> None:
    assert differing([(text, text) for text in HARMLESS], REDACTION.text) == []


FRAGMENTS = st.one_of(
    st.sampled_from([each.text for each in SECRETS]),
    st.sampled_from(
        [
            *("password", "token", "api_key", "Authorization", "cookie", "secret", "tokens", MASK),
            *('"', "'", '\\"', "\\", ":", "=", ": ", "{", "}", "[", "]", ",", " ", "\n", "--", "@"),
            *(mask("password"), "null", "http://", "eyJ", "-----BEGIN PRIVATE KEY-----", "4111"),
        ]
    ),
    st.text(max_size=5),
    st.integers().map(str),
)
TEXTS = st.lists(FRAGMENTS, max_size=12).map("".join)
KEYS = st.one_of(st.sampled_from(["password", "x-api-key", "n", "a/b~c", "tokens"]), st.text())
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.one_of(TEXTS, st.none(), st.booleans(), st.integers()),
    lambda below: st.one_of(st.lists(below, max_size=4), st.dictionaries(KEYS, below, max_size=4)),
    max_leaves=12,
)


@given(TEXTS)
@example("AKIAIOSFODNN7EXAMPLEsk-canary0123456789abcdef")
def test_redacting_redacted_text_changes_nothing(text: str) -> None:
    masked = REDACTION.text(text)
    assert REDACTION.text(masked) == masked


def test_a_text_is_read_once() -> None:
    redaction = Redaction((), configured_patterns(r"\bA"))

    assert redaction.value("A" * 50_000) == mask("own_pattern") + "A" * 49_999


@given(VALUES.filter(lambda value: isinstance(value, (dict, list))), st.booleans())
def test_redacted_json_is_valid_and_lists_the_redacted_paths(value: Any, is_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    masked = REDACTION.text(text)
    kept = json.loads(masked)
    assert REDACTION.text(masked) == masked
    for path in masked_paths({"arguments": masked}, ["arguments"]):
        _, _, pointer = path.partition(":")
        at: Any = kept
        for part in pointer.split("/")[1:]:
            part = unescape(part).replace("~1", "/").replace("~0", "~")
            at = at[int(part)] if isinstance(at, list) else at[part]
        assert MASK in json.dumps(at) + unescape(pointer)
    if MASK not in masked:
        assert masked == text


CANARY = "hunter2"
CARD = 4111111111111111
ALPHABETS = st.text(st.sampled_from('aé血α🙂\u0301\u200f"\\\n\t\0/ '), max_size=6)


PLAIN: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-999, 999), st.just({})
)


@st.composite
def nested_secrets(draw: st.DrawFn) -> str:
    """Draw JSON with `hunter2` under secret keys and canaries by form, inside strings of JSON."""
    secrets = st.sampled_from([each.text for each in SECRETS])
    value: Any = draw(secrets.map(lambda secret: f"in {secret}, too"))
    for _ in range(draw(st.integers(1, 4))):
        match draw(st.sampled_from(["key", "object", "array", "string", "escaped"])):
            case "key":
                value = {draw(ALPHABETS): value, "apiKey": CANARY, "card_number": CARD}
            case "object":
                value = {draw(ALPHABETS): draw(PLAIN), draw(ALPHABETS): value}
            case "array":
                value = [draw(ALPHABETS), value, {"cardNumber": float(CARD)}, draw(PLAIN)]
            case "string":
                value = json.dumps({"body": value}, ensure_ascii=draw(st.booleans()))
            case "escaped":  # other escapes of the same text
                value = json.dumps({"password": CANARY, "x": value}).replace("ass", r"\u0061ss")
    return json.dumps(
        [value], ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1]))
    )


def flat(text: str) -> str:
    """Return a text with everything that strings of JSON in it hold, at every level."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    if isinstance(value, str):
        return flat(value)
    if isinstance(value, dict):
        return "\n".join(
            flat(str(key)) + flat(each if isinstance(each, str) else json.dumps(each))
            for key, each in value.items()
        )
    if isinstance(value, list):
        return "\n".join(
            flat(each if isinstance(each, str) else json.dumps(each)) for each in value
        )
    return text


@given(nested_secrets())
def test_no_secret_survives_in_nested_json(text: str) -> None:
    hidden = [CANARY, str(CARD), *(each.hidden for each in SECRETS)]
    sent, redacted = flat(text), flat(REDACTION.text(text))
    assert any(each in sent for each in hidden)
    assert [each for each in hidden if each in redacted] == []


AROUND_MASKS = re.compile(r"""[\\"']*\[masked: [a-z_]+\][\\"']*""")


@given(st.one_of(nested_secrets(), TEXTS))
def test_text_outside_redaction_markers_is_unchanged(text: str) -> None:
    first, *others = AROUND_MASKS.split(REDACTION.text(text))
    assert text.startswith(first)
    at = len(first)
    for part in others:
        at = text.find(part, at)
        assert at >= 0
        at += len(part)
    assert text.endswith(others[-1] if others else first)


def test_duplicate_keys_and_number_forms_are_unchanged() -> None:
    text = '{"a":1e2, "a" : 0.10,"password":"x", "a":-0,"password":12e1,"b":"\\u00e9\\/"}'
    assert REDACTION.text(text) == (
        '{"a":1e2, "a" : 0.10,"password":"[masked: password]", "a":-0,'
        '"password":"[masked: password]","b":"\\u00e9\\/"}'
    )


@pytest.mark.parametrize(
    "text",
    [
        "password=xyz " * 2_000_000,
        json.dumps([{"password": "x"}] * 20_000),
        json.dumps({"body": json.dumps([f"ghp_{'a' * 36}"] * 20_000)}),
        "token_count=5 token: " * 300_000,
    ],
    ids=["text", "keys of JSON", "values of nested JSON", "candidates"],
)
def test_a_text_with_too_many_secrets_is_replaced_by_its_size(text: str) -> None:
    marker = f"[masked: payload of {len(text)} bytes]"
    assert REDACTION.text(text) == marker
    assert REDACTION.text(f"{text}[masked: rest of 50000000 bytes]") in (
        "[masked: payload of 50000000 bytes]",
        f"{marker}[masked: rest of 50000000 bytes]",
    )
    assert masked_paths({"result": marker}, ["result"]) == ["result"]


def test_a_write_with_too_many_secrets_is_rejected() -> None:
    redaction = REDACTION.of_write()
    texts = ["password=xyz " * (MAX_SECRETS // 2)] * 100
    with pytest.raises(TooManySecrets):
        [redaction.text(text) for text in texts]
    REDACTION.of_write().text(texts[0])


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)+b", "(.*)*b", "a*a*a*a*b"])
def test_configured_patterns_are_matched_in_linear_time(pattern: str) -> None:
    """`(a+)+b` took 23 seconds for 28 characters, and twice as long for each more."""
    text = "a" * 100_000
    assert Redaction((), configured_patterns(pattern)).text(text) == text


def test_deep_json_and_invalid_unicode_are_redacted() -> None:
    deep = '{"a":' * 1000 + '{"password": "hunter2"}' + "}" * 1000
    assert REDACTION.text(deep) == deep.replace("hunter2", mask("password"))
    assert masked_paths({"result": REDACTION.text(deep)}, ["result"]) == ["result"]
    assert REDACTION.text('{"password": "a\\u0000\\ud800"}') == '{"password": "[masked: password]"}'


def test_many_redacted_values_below_a_long_key_are_reported_as_one_path() -> None:
    text = json.dumps({"k" * 1_000_000: [mask("jwt"), *[""] * 100_000]})
    assert masked_paths({"result": text}, ["result"]) == ["result"]


HOSTILE_UNITS = [
    *("eyJ", "eyJaaaaaaaa.", "password", "password=", '"password":"', '{"secret":[', "[", "\\"),
    *('\\"token\\":\\"', "://a:", "-----BEGIN PRIVATE KEY-----", "sk-", "4", "4111 ", "a"),
    *("password\\\\\\", "token.", "password=,a", " ", "bearer aaaaaaaa ", '"', "http://a:a:"),
    *(
        "curl -u ",
        "mysql -p",
        "--password ",
        "<password>",
        "password='${",
        "\x1b[",
        "\\x1b[0;",
        "%25",
    ),
    *(
        "&quot;",
        '"name":"password",',
        '["password", ',
        "password: str = ",
        "sk-a",
        "AKIA2",
        "eyJa.eyJa.",
    ),
    *(
        "identified by ",
        "login password ",
        "0123456789abcdef",
        "password: a b ",
        "\\\\n",
        "token\x1b[m",
    ),
]
"""Beginnings of secrets. Repeated, they make a backtracking expression take quadratic time."""


@pytest.mark.parametrize(
    ("length", "seconds"),
    [(50_000, 0.5), pytest.param(500_000, 2, marks=pytest.mark.thorough)],
)
def test_redaction_of_hostile_text_takes_linear_time(length: int, seconds: float) -> None:
    for unit in HOSTILE_UNITS:
        for before in ("", '{"secret": "', "password="):
            started = time.process_time()
            REDACTION.text(before + unit * (length // len(unit)))
            taken = time.process_time() - started
            assert taken < seconds, f"{length:,} characters of {before + unit!r}: {taken:.1f} s"


def test_configured_keys_and_patterns_are_masked() -> None:
    keys, patterns = configured_keys("patient-id, SSN"), r"MRN-\d{8} P[0-9]{6}"
    redaction = Redaction(keys, configured_patterns(patterns))
    text = '{"patientId": "Ann", "ssn": 7, "note": "MRN-12345678, P123456"}'
    assert redaction.text(text) == (
        '{"patientId": "[masked: patient_id]", "ssn": "[masked: ssn]",'
        ' "note": "[masked: own_pattern], [masked: own_pattern]"}'
    )


def rejection_of(pattern: str) -> str:
    try:
        configured_patterns(pattern)
    except ValueError as error:
        return str(error)
    return "accepted"


def test_patterns_that_are_invalid_or_match_everything_are_rejected() -> None:
    answers = {pattern: rejection_of(pattern) for pattern in ("(", "a*", "(?=a)b", r"(a)\1", ".+")}
    expected = ("regular expression", "finds secrets")
    wrong = {
        pattern: answer
        for pattern, answer in answers.items()
        if not any(each in answer for each in expected)
    }
    assert wrong == {}


OWN = Redaction((), configured_patterns(r"\d{8} MRN-\d+ [a-z]{4}\d{4} \d,\s?"))

OWN_PATTERN_CASES: list[tuple[str, str | None]] = [
    ('{"n": 123456789012}', '{"n": "[masked: own_pattern]"}'),
    ('{"n": -1.12345678e+7, "m": 1}', '{"n": "[masked: own_pattern]", "m": 1}'),
    ('[1234567812345678, "a 12345678 b", true]', None),
    ('{"12345678": {"a": [12345678]}}', None),
    (r'{"name": "\u4f6012345678", "b": "\\12345678\""}', None),
    (r'["a\u00001234567"]', r'["a\u00001234567"]'),
    (r'["a\u0000\u003112345678"]', r'["a\u0000[masked: own_pattern]8"]'),
    ("[1, 2, 3]", "[1, 2, 3]"),
    ('["a1, MRN-7"]', '["a[masked: own_pattern][masked: own_pattern]"]'),
    ("[INFO] MRN-7 came", "[INFO] [masked: own_pattern] came"),
    ("{'name': 'MRN-7'}", "{'name': '[masked: own_pattern]'}"),
    ("12345678", "[masked: own_pattern]"),
]
"""Texts, and the expected result. None: any JSON in which masks replace the secret."""


def test_redacted_json_is_valid_if_a_configured_pattern_matches_within_it() -> None:
    def is_json_with_masks(text: str, actual: str) -> bool:
        paths = masked_paths({"result": json.dumps(json.loads(actual))}, ["result"])
        return "12345678" not in actual and paths != ["result"]

    assert differing(OWN_PATTERN_CASES, OWN.text, is_json_with_masks) == []
    redacted = [OWN.text(text) for text, _ in OWN_PATTERN_CASES]
    assert differing(zip(redacted, redacted, strict=True), OWN.text) == []


@given(
    VALUES.filter(lambda value: isinstance(value, (dict, list))),
    st.booleans(),
    st.sampled_from([r"\d", r"[b-cf-j]\d?", '":', r"\d[^a]", "u[0-9a-f]{2}", r"[0-9\\]{2}"]),
)
def test_redacted_json_is_valid_for_any_configured_pattern(
    value: Any, is_ascii: bool, pattern: str
) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    masked = Redaction((), configured_patterns(pattern)).value(text)
    assert type(json.loads(masked)) is type(value)


def test_redaction_does_not_change_markers_of_removed_payloads() -> None:
    for text in (
        f"{'x' * 30}[masked: rest of 12345678 bytes]",
        '{"password": "[masked: pass[masked: rest of 5000 bytes]',
        '{"token": "[masked: rest of 5000 bytes]',
        "[masked: payload of 12345678 bytes]",
    ):
        mark = text[text.rindex("[masked: ") :]
        masked = OWN.text(text)
        assert masked.endswith(mark)
        assert OWN.text(masked) == masked


def test_data_of_shown_types_is_kept_and_text_data_is_decoded() -> None:
    key = "AKIA" + "QYLPMN5HFVTZ3XWB"
    redaction = REDACTION
    assert redaction.text(key) != key
    picture = f'{{"image": "data:image/png;base64,iVBOR/{key}+g=="}}'
    secret = b64encode(f"aws {key} in a note".encode()).decode()
    note = f"see data:text/plain;charset=utf-8;base64,{secret} here"

    assert redaction.text(picture) == picture
    assert redaction.text(picture.replace("png", "tiff")) != picture.replace("png", "tiff")
    masked = redaction.text(note)
    assert masked.startswith("see data:text/plain;charset=utf-8;base64,")
    assert masked.endswith(" here")
    decoded = b64decode(masked.split(",")[1].split(" ")[0]).decode()
    assert key not in decoded
    assert decoded.endswith(" in a note")
    assert redaction.text(masked) == masked
