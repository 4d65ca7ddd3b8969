"""Words: a table of texts, the words of each, and queries that must and must not match."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.search import Query, plain_text
from tracer.search.words import fold, placed_fold, words_of

TABLE: list[tuple[str, str, str, str]] = [
    # text, words, queries that must match (separated by ;), queries that must not
    ("Your refund is done", "your refund is done", 'refund done;"is done";REFUND', "done -refund"),
    ("", "", "", "a"),
    ("  \t\n ", "", "", "a"),
    ("INV-31337", "inv 31337", "INV-31337;31337;inv", "INV-3133X;1337"),
    ("notes.txt", "notes txt", "notes.txt;txt;notes", "otes;note.txt"),
    ("user_id=7", "user id 7", "user_id;id 7", "userid"),
    ("C:\\new\\file.py", "c new file py", "new\\file.py;file", "ew"),
    ("/var/log/app.log", "var log app log", '"log/app"', '"app var"'),
    ("a@b.example", "a b example", "a@b.example", "a@c"),
    ("https://x.example/?q=1&r=2", "https x example q 1 r 2", "x.example q=1", "q=2"),
    ("1,234.50", "1 234 50", "1,234.50;234", "1234"),
    ("121/79", "121 79", "121/79;79", "121/80"),
    ("-5 °C", "5 c", "5", "6"),
    ("don't", "don t", "don't;don", "dont"),
    ("e-mail", "e mail", "e-mail;mail", "email"),
    ("camelCase", "camelcase", "camelcase;camel", "case"),
    ("HTTP 500: Internal", "http 500 internal", '"500 internal"', '"internal 500"'),
    ("ValueError", "valueerror", "valueerror;val", "error"),
    ("x" * 70, "x" * 60, "x" * 70 + ";" + "x" * 60, "x" * 59 + "y"),
    ("x" * 60, "x" * 60, "x" * 60, "y"),
    ("a b", "a b", "a;b;a b", "c"),
    ("café", "cafe", "cafe;CAFÉ;cafe\u0301", "caf\u00e9s"),
    ("cafe\u0301", "cafe", "café", "cafes"),
    ("ÉCOLE", "ecole", "école", "ecoles"),
    ("straße", "strasse", "STRASSE;straße", "strase"),
    ("Ångström", "angstrom", "angstrom", "angstroms"),
    ("łódź", "łodz", "łódź", "lodz"),
    ("naïve", "naive", "naive", "nave"),
    ("İstanbul", "istanbul", "istanbul", "stanbul"),
    ("ﬁle", "file", "file", "fle"),
    ("①②", "12", "12", "21"),
    ("½", "1 2", '"1 2"', "12"),
    ("ＡＢＣ", "abc", "abc", "ab -abc"),
    ("x²", "x2", "x2", "y2"),
    ("Việt Nam", "viet nam", "viet nam", "vet"),
    ("Ελλάδα", "ελλαδα", "ΕΛΛΑΔΑ", "ελλας"),
    ("ΟΔΟΣ", "οδοσ", "οδος", "οδο -οδος"),
    ("ёлка", "елка", "елка;ЁЛКА", "олка"),
    ("Йод", "иод", "йод", "од"),
    ("Київ", "киів", "київ", "киев"),
    ("مُحَمَّد", "محمد", "محمد;مُحَمَّد", "احمد"),
    ("إسلام", "اسلام", "اسلام;إسلام", "سلم"),
    ("محـــمد", "محمد", "محمد", "حمد"),
    ("متى يصل الطلب", "متى يصل الطلب", "الطلب متى", "طلبات"),
    ("שָׁלוֹם", "שלום", "שלום", "שלם"),
    ("हिन्दी", "हिन्दी", "हिन्दी", "हन्द"),
    ("வணக்கம்", "வணக்கம்", "வணக்கம்", "கம்"),
    ("退款单", "退款 款单 单", "退款;款单;退;款;单;退款单", "单退;退单"),
    ("已退款", "已退 退款 款", "退款;款;已退款", "款已"),
    ("订单INV-7完成", "订单 单 inv 7 完成 成", "订单 inv-7;完成;订单INV-7;成", "单完"),
    ("退", "退", "退", "款"),
    ("が", "が", "が", "か"),
    ("ｶﾞｽ", "ガス ス", "ガス;ガ", "カス"),
    ("東京タワー", "東京 京タ タワ ワー ー", "東京;タワー;東京タワー", "京都"),
    ("ひらがな", "ひら らが がな な", "ひらがな;がな", "かな"),
    ("々", "々", "々", "人"),
    ("안녕하세요", "안녕 녕하 하세 세요 요", "안녕;하세요", "안하"),
    ("환불 완료", "환불 불 완료 료", "환불 완료;환", "환료"),
    ("\u1112\u1161\u11ab글", "한글 글", "한글", "글한"),
    ("สวัสดี", "สว วั ัส สด ดี ี", "สวัสดี;สวั", "ดีส"),
    ("ສະບາຍ", "ສະ ະບ ບາ າຍ ຍ", "ສະບາຍ;ບາຍ", "ຍບ"),
    ("កម្ពុជា", "កម ម្ ្ព ពុ ុជ ជា ា", "កម្ពុជា", "ជក"),
    ("မြန်မာ", "မြ ြန န် ်မ မာ ာ", "မြန်မာ;မာ", "ာမ"),
    ("中文 and English", "中文 文 and english", "中文 english;文", "english -中文"),
    ("𠮷野家", "𠮷野 野家 家", "𠮷野家;野家", "吉野"),
    ("😀 fine", "fine", "fine", "😁x"),
    ("<b>bold</b>", "b bold b", "<b>bold;bold", "bolder"),
    ("a\x00b", "a b", '"a b"', "ab"),
    ("\ud800x", "x", "x", "y"),
    ("title:refund", "title refund", "title:refund", "title:refunds"),
    ("a AND b OR NOT c", "a and b or not c", "AND b;OR NOT", "xor"),
    ("+must (group) ^2 ~1 *", "must group 2 1", "+must;(group);^2;~1", "mus -group"),
    ("[1 TO 5]", "1 to 5", "[1 TO 5]", '"5 TO 1"'),
    ('say "hi" now', "say hi now", '"say hi now";"hi"', '"say now"'),
    ("one two three", "one two three", '"two thr', '"one three"'),
    ("prefixes", "prefixes", "pre;prefix", "pr;fixes"),
    ("x1y2", "x1y2", "x1y", "1y2"),
    ("A.B.C.", "a b c", '"A.B.C."', '"A.C"'),
    ("tel: +49 (30) 123", "tel 49 30 123", "+49 (30) 123", "+49 123 30x"),
    ("100%", "100", "100%;100", "1000"),
    ("ſuch", "such", "such", "fuch"),
]


@pytest.mark.parametrize(("text", "words", "found", "not_found"), TABLE)
def test_text_has_words_and_matches_queries(
    text: str, words: str, found: str, not_found: str
) -> None:
    assert words_of(text) == words
    for query in filter(None, found.split(";")):
        assert _matches(query, text), query
    for query in not_found.split(";"):
        assert not _matches(query, text), query


def test_table_has_eighty_lines() -> None:
    assert len(TABLE) >= 80


def _matches(text: str, searched: str) -> bool:
    query = Query.parse(text)
    words = f" {words_of(searched)} "
    return all(any(True for _ in term.numbers_in(words)) for term in query.terms) and not any(
        any(True for _ in term.numbers_in(words)) for term in query.without
    )


_LETTERS = "aZé1 -_ß退款がか゛ﾞ\u0301\u064bمن한ᄒ\u1161ที่\U00020bb7İ½"


@given(st.text(st.sampled_from(_LETTERS) | st.characters(), max_size=30))
def test_folding_in_parts_equals_folding_a_text(text: str) -> None:
    folded, places = placed_fold(text)
    assert folded == fold(text)
    assert len(places) == len(folded) + 1
    assert places == sorted(places)


def test_json_is_read_without_escapes_and_with_its_own_numbers() -> None:
    text = '{"note": "a\\nb \\u00e9", "sum": 12.10, "inner": "{\\"k\\": \\"v\\\\nw\\"}"}'
    assert words_of(plain_text(text)) == "note a b e sum 12 10 inner k v w"
    assert words_of(plain_text('{"cut": "a\\nb')) == "cut a b"


def test_masks_are_no_words() -> None:
    assert words_of(plain_text("key [masked: api_key] end")) == "key end"
    assert words_of(plain_text('{"a": "x [masked: rest of 900 bytes]"}')) == "a x"
