"""The texts around secrets: six kinds of text, in eight languages."""

from __future__ import annotations

import json
from collections.abc import Callable
from textwrap import indent

LANGUAGES = {
    "English": "I tried it again with the value from the page",
    "German": "Ich habe es noch einmal mit dem Wert von der Seite versucht",
    "French": "J’ai réessayé avec la valeur affichée à l’écran",
    "Spanish": "Lo intenté otra vez con el valor de la página",
    "Russian": "Я попробовал ещё раз со значением со страницы",
    "Arabic": "حاولت مرة أخرى بالقيمة الموجودة في الصفحة",
    "Chinese": "我用页面上的值又试了一次",
    "Japanese": "ページの値でもう一度試しました",
}


def _log_line(text: str, sentence: str) -> str:
    return f"2026-03-04T05:06:07.890Z [worker-3] INFO {sentence}: {text}"


def _colours(text: str, sentence: str) -> str:
    return f"\x1b[1;33m{sentence}\x1b[0m \x1b]0;title\x07\x1b[32m{text}\x1b[0m\x1b[K"


def _code(text: str, sentence: str) -> str:
    return f"# {sentence}\nresult = run({json.dumps(text)})\nprint(result)\n"


def _configuration(text: str, sentence: str) -> str:
    return f"# {sentence}\nserver:\n  port: 8080\n  setup: |\n{indent(text, '    ')}\n"


def _message(text: str, sentence: str) -> str:
    return f"{sentence}:\n\n```\n{text}\n```\n\n{sentence}."


SURROUNDINGS: dict[str, Callable[[str, str], str]] = {
    "bare": lambda text, sentence: text,
    "log line": _log_line,
    "terminal colours": _colours,
    "code": _code,
    "configuration": _configuration,
    "message": _message,
}
"""Functions that put a text with a secret into another text, with a sentence in some language."""
