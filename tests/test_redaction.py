"""Secrets in texts: what is masked, what stays, and that it takes linear time."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.canaries import SECRETS
from tracer.masked_places import masked_places
from tracer.redaction import MASK, Redaction, mask, names_given, patterns_given
from tracer.secret_keys import NAMES
from tracer.text import unescape

REDACTION = Redaction()


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ('{"password": "hunter2", "n": 1}', '{"password": "[masked: password]", "n": 1}'),
        ('{"a":{"Client-Secret":1234}}', '{"a":{"Client-Secret":"[masked: client_secret]"}}'),
        (r'{"q": "he said \"x\"", "pass_word": "a\"b"}', None),
        (r'{"body":"{\"apiKey\": \"a\\\"b\", \"n\": 1}"}', None),
        (r'{"b":"{\"c\":\"{\\\"token\\\":\\\"a\\\\\\\"b\\\",\\\"n\\\":1}\"}"}', None),
        ('{"credentials": {"user": "a", "keys": ["}"]}, "n": 2}', None),
        ('{"cookies": ["a=1", "b=2"]}', '{"cookies": "[masked: cookie]"}'),
        ('{"n": 4111111111111111}', '{"n": "[masked: card_number]"}'),
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
        ("İ PASSWORD=hunter2", "İ PASSWORD=[masked: password]"),
        ("\u241b0000 password=a\u241b0000b", "\u241b0000 password=[masked: password]"),
    ],
)
def test_the_value_of_a_secret_key_is_masked_and_the_rest_stays(
    text: str, masked: str | None
) -> None:
    found = REDACTION.text(text)
    if masked is None:  # it is JSON, and has to stay so
        assert set(json.loads(found)) == set(json.loads(text))
        assert MASK in found
    else:
        assert found == masked


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
"""How keys are spelled, by what that is called."""

MORE_KEYS = [
    *("pass_word", "passwd", "passwords", "user_password_2", "authorisation", "set_cookie"),
    *("proxy_authorization", "access_token", "refresh_token", "auth_token", "session_token"),
    *("id_token", "webhook_secret", "client_secret_key", "openai_api_key", "credentials"),
]
"""Keys that secrets go by besides the rules' own names."""


KEYS_SPELLED = {
    SPELLINGS[spelling](name.split("_"))
    for name in [*NAMES, *MORE_KEYS]
    for spelling in SPELLINGS
    if spelling != "flat" or name in NAMES
}


@pytest.mark.parametrize("key", sorted(KEYS_SPELLED))
def test_each_key_is_known_in_each_spelling_in_each_form(key: str) -> None:
    assert REDACTION.rule_of(key) is not None
    for text in (
        json.dumps({key: "canary"}),
        json.dumps({"body": json.dumps({key: "canary"})}),
        json.dumps({"a": [{key: ["canary"]}]}, indent=1),
        f'{{"{key}": "canary',
        repr({key: "canary"}),
        f"https://host/?{key}=canary&n=1",
        f"{key}=canary",
        f"{key}: canary",
    ):
        assert "canary" not in REDACTION.text(text), text


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret.rule)
@pytest.mark.parametrize(
    "around", ["{}", "it is {}, they say", '{{"note": ["{}"]}}', "key={}", "({})"]
)
def test_each_form_of_secret_is_masked_wherever_it_stands(secret: Any, around: str) -> None:
    masked = REDACTION.text(around.format(secret.text))
    assert secret.hidden not in masked
    assert masked == around.format(secret.text.replace(secret.hidden, mask(secret.rule)))


@pytest.mark.parametrize(
    "text",
    [
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
    ],
)
def test_what_is_no_secret_stays_as_it_was(text: str) -> None:
    assert REDACTION.text(text) == text


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
def test_masking_what_is_masked_changes_nothing(text: str) -> None:
    masked = REDACTION.text(text)
    assert REDACTION.text(masked) == masked


@given(VALUES.filter(lambda value: isinstance(value, (dict, list))), st.booleans())
def test_json_stays_json_and_its_places_are_those_of_the_masks(value: Any, is_ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    masked = REDACTION.text(text)
    kept = json.loads(masked)
    assert REDACTION.text(masked) == masked
    for place in masked_places({"arguments": masked}, ["arguments"]):
        _, _, pointer = place.partition(":")
        at: Any = kept
        for part in pointer.split("/")[1:]:
            part = unescape(part).replace("~1", "/").replace("~0", "~")
            at = at[int(part)] if isinstance(at, list) else at[part]
        assert MASK in json.dumps(at) + unescape(pointer)
    if MASK not in masked:
        assert masked == text


def test_deep_json_and_what_is_no_unicode_survive() -> None:
    deep = '{"a":' * 1000 + '{"password": "hunter2"}' + "}" * 1000
    assert REDACTION.text(deep) == deep.replace("hunter2", mask("password"))
    assert masked_places({"result": REDACTION.text(deep)}, ["result"]) == ["result"]
    assert REDACTION.text('{"password": "a\\u0000\\ud800"}') == '{"password": "[masked: password]"}'


def test_places_below_a_long_name_do_not_each_take_up_its_length() -> None:
    text = json.dumps({"k" * 1_000_000: [mask("jwt"), *[""] * 100_000]})
    assert masked_places({"result": text}, ["result"]) == ["result"]


def test_hostile_text_takes_linear_time() -> None:
    units = [
        "eyJ",
        "eyJaaaaaaaa.",
        "password",
        "password=",
        '"password":"',
        '{"secret":[',
        "[",
        "\\",
    ]
    units += ['\\"token\\":\\"', "://a:", "-----BEGIN PRIVATE KEY-----", "sk-", "4", "4111 ", "a"]
    units += [
        "password\\\\\\",
        "token.",
        "password=,a",
        " ",
        "bearer aaaaaaaa ",
        '"',
        "http://a:a:",
    ]
    for unit in units:
        for before in ("", '{"secret": "', "password="):
            started = time.process_time()
            REDACTION.text(before + unit * (500_000 // len(unit)))
            assert time.process_time() - started < 2, unit


def test_more_keys_and_more_patterns_can_be_given() -> None:
    redaction = Redaction(names_given("patient-id, SSN"), patterns_given(r"MRN-\d{8} P[0-9]{6}"))
    text = '{"patientId": "Ann", "ssn": 7, "note": "MRN-12345678, P123456"}'
    assert redaction.text(text) == (
        '{"patientId": "[masked: patient_id]", "ssn": "[masked: ssn]",'
        ' "note": "[masked: own_pattern], [masked: own_pattern]"}'
    )


@pytest.mark.parametrize("pattern", ["(", "a*", r"(?=a)b", r"(a)\1", ".+"])
def test_a_pattern_that_is_none_or_finds_secrets_everywhere_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"regular expression|finds secrets"):
        patterns_given(pattern)


OWN = Redaction((), patterns_given(r"\d{8} MRN-\d+ [a-z]{4}\d{4} \d,\s?"))


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ('{"n": 123456789012}', '{"n": "[masked: own_pattern]"}'),
        ('{"n": -1.12345678e+7, "m": 1}', '{"n": "[masked: own_pattern]", "m": 1}'),
        ('[1234567812345678, "a 12345678 b", true]', None),
        ('{"12345678": {"a": [12345678]}}', None),
        (r'{"name": "\u4f6012345678", "b": "\\12345678\""}', None),
        (r'["a\u00001234567"]', '["a[masked: own_pattern]567"]'),
        ("[1, 2, 3]", '["[masked: own_pattern]", "[masked: own_pattern]", 3]'),
        ('["a1, MRN-7"]', '["a[masked: own_pattern][masked: own_pattern]"]'),
        ("[INFO] MRN-7 came", "[INFO] [masked: own_pattern] came"),
        ("{'name': 'MRN-7'}", "{'name': '[masked: own_pattern]'}"),
        ("12345678", "[masked: own_pattern]"),
    ],
)
def test_an_own_pattern_leaves_json_what_it_is(text: str, masked: str | None) -> None:
    found = OWN.text(text)
    assert OWN.text(found) == found
    if masked is None:
        assert "12345678" not in found
        assert masked_places({"result": json.dumps(json.loads(found))}, ["result"]) != ["result"]
    else:
        assert found == masked


@given(
    VALUES.filter(lambda value: isinstance(value, (dict, list))),
    st.booleans(),
    st.sampled_from([r"\d", r"[b-cf-j]\d?", '":', r"\d[^a]", "u[0-9a-f]{2}", r"[0-9\\]{2}"]),
)
def test_json_stays_json_whatever_a_pattern_finds(value: Any, is_ascii: bool, pattern: str) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii)
    masked = Redaction((), patterns_given(pattern)).value(text)
    assert type(json.loads(masked)) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        f"{'x' * 30}[masked: rest of 12345678 bytes]",
        '{"password": "[masked: pass[masked: rest of 5000 bytes]',
        '{"token": "[masked: rest of 5000 bytes]',
        "[masked: payload of 12345678 bytes]",
    ],
)
def test_what_says_how_long_a_text_was_stays(text: str) -> None:
    size = text[text.rindex("[masked: ") :]
    masked = OWN.text(text)
    assert masked.endswith(size)
    assert OWN.text(masked) == masked
