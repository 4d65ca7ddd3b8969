"""The demonstration: two requests, and a script that replaces the model.

Only the model is replaced. The plan, the calls, the rejected reading, the time from the MCP server,
the request to the server and the records are real. The script does not depend on the tools'
results.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal

import orjson

from tracer import (
    ChosenCall,
    Generation,
    Message,
    ModelError,
    Script,
    ScriptedModel,
    ToolSpec,
    Turn,
    call,
)

TOKEN_ID = "user-p-1-demo"
"""The caller of the demonstration. Only the tools receive it, not the model or the records."""

REQUEST = """\
Please write this down, and review my week.
I just measured 152 over 95 with a pulse of 78, and five minutes later 88 over 146. I twisted my \
knee on Monday: besides lisinopril 10 mg every morning and ginkgo 120 mg every evening I take \
ibuprofen 400 mg 3 times a day since then. I feel dizzy when I get up (起床时头晕)."""

LIVE_REQUEST = "Review my week again, and tell me what to do."
"""The request of the run that is watched while it runs."""

LIVE_SECONDS_PER_TOKEN = 0.15
"""With this pace, a run of `LIVE_REQUEST` takes two minutes."""

_TO_RECORD = (
    "Record: blood pressure 152 over 95 with a pulse of 78, then 88 over 146, both measured just "
    "now; a knee twisted on Monday; lisinopril 10 mg every morning, ginkgo 120 mg every evening, "
    "ibuprofen 400 mg 3 times a day since Monday, for the knee; dizziness when getting up, in the "
    "user's words 起床时头晕."
)
_TO_REVIEW = "Review the user's week, and tell the user what to do."


def scripted_model() -> ScriptedModel:
    """Return a model that plays one demonstration run, strictly: each turn once and no other."""
    return ScriptedModel(_scripts(times=1))


_seconds_per_token: ContextVar[float] = ContextVar("seconds_per_token", default=0.0)


@contextmanager
def live_pace() -> Iterator[None]:
    """Let the scripted model answer as slowly as a model, in the runs that start in this block."""
    token = _seconds_per_token.set(LIVE_SECONDS_PER_TOKEN)
    try:
        yield
    finally:
        _seconds_per_token.reset(token)


class DemonstrationModel:
    """Answers the requests of the demonstration, any number of times, and no others.

    It is used if no model is configured.
    """

    name = "scripted"

    def __init__(self) -> None:
        live = Script([_plan_review()], request=LIVE_REQUEST, agent="planner", times=None)
        self._scripted = ScriptedModel([*_scripts(times=None), live], name=self.name)

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Generation:
        """Return the next answer of the demonstration; see `ChatModel`.

        Raises:
            ModelError: The conversation is not part of the demonstration.
        """
        try:
            answer = await self._scripted.complete(messages, tools)
        except ModelError as error:
            raise ModelError(
                "The demonstration follows a script, which does not contain this request. Set "
                "TRACER_MODEL, for example to openai:gpt-5-mini, and OPENAI_API_KEY to use a model."
            ) from error
        await asyncio.sleep(_seconds_per_token.get() * (answer.output_tokens or 0))
        return answer


def _scripts(times: int | None) -> list[Script]:
    """Return the demonstration's conversations, for so many runs."""

    def script(agent: str, request: str, *turns: Turn) -> Script:
        return Script(turns, request=request, agent=agent, times=times)

    return [
        script("planner", REQUEST, _plan()),
        script("nurse", _TO_RECORD, *_recording()),
        script("coordinator", _TO_REVIEW, *_coordinating()),
        script("nurse", "in two sentences how high the readings are", *_reading_the_week()),
        script("reviewer", "a medication check and a symptom check", *_reviewing()),
        script("pharmacist", "Query the user's medication", *_checking_medication()),
        script("nurse", "which symptoms may belong to which readings", *_checking_symptoms()),
        *(
            script("interaction_checker", f"Query {pair[0]} and {pair[1]} ", *_checking_pair(*pair))
            for pair in _PAIRS
        ),
    ]


_PAIRS = [
    (
        "lisinopril",
        "ibuprofen",
        "They interact: ibuprofen weakens lisinopril and strains the kidneys. It fits readings "
        "that rose since Monday. Needs attention.",
    ),
    (
        "ibuprofen",
        "ginkgo",
        "They may interact: both make bleeding likelier. No recorded symptom fits. Worth asking.",
    ),
    (
        "lisinopril",
        "ginkgo",
        "No interaction of weight is known. Lisinopril by itself can make people dizzy when they "
        "get up.",
    ),
]


def _turn(
    tokens: tuple[int, int], text: str, *calls: tuple[str, Mapping[str, object], str | None]
) -> Turn:
    """Return an answer: tokens in and out, text, and calls as (tool, arguments, provider's id)."""
    chosen: list[ChosenCall] = [call(*each) for each in calls]
    # The prices of gpt-5-mini: $0.25 and $2 per million tokens.
    cost = Decimal(tokens[0] + 8 * tokens[1]) / 4_000_000
    return Turn(text, chosen, input_tokens=tokens[0], output_tokens=tokens[1], cost_usd=cost)


_REVIEW_STEP = {"agent": "coordinator", "request": _TO_REVIEW}


def _plan() -> Turn:
    steps = [{"agent": "nurse", "request": _TO_RECORD}, _REVIEW_STEP]
    return _turn((612, 148), orjson.dumps({"steps": steps}).decode())


def _plan_review() -> Turn:
    return _turn((478, 52), orjson.dumps({"steps": [_REVIEW_STEP]}).decode())


# Providers repeat their ids, leave them empty or send none: all of it happens here.


def _recording() -> list[Turn]:
    def medication(
        name: str, dosage: str, frequency: str, notes: str | None = None
    ) -> dict[str, object]:
        return {
            "medication_name": name,
            "dosage": dosage,
            "frequency": frequency,
            "notes": notes,
        }

    lisinopril = medication("lisinopril", "10 mg", "every morning")
    ginkgo = medication("ginkgo", "120 mg", "every evening")
    ibuprofen = medication("ibuprofen", "400 mg", "3 times a day", "since Monday, for the knee")
    first = {"systolic": 152, "diastolic": 95, "heart_rate": 78}
    second = {"systolic": 88, "diastolic": 146}
    swapped = {
        "systolic": 146,
        "diastolic": 88,
        "notes": "told as 88 over 146; taken for swapped",
    }
    knee = {"event_type": "injury", "event_name": "twisted knee", "notes": "on Monday"}
    dizziness = {"symptom_name": "dizziness", "severity": "mild", "notes": "起床时头晕"}
    return [
        _turn(
            (934, 318),
            "I record both readings, the knee, the three medications and the symptom.",
            ("record_blood_pressure", first, "call_0"),
            ("record_blood_pressure", second, "call_0"),
            ("record_health_event", knee, "call_0"),
            ("record_medication", lisinopril, ""),
            ("record_medication", ginkgo, ""),
            ("record_medication", ibuprofen, None),
            ("record_symptom", dizziness, None),
        ),
        _turn(
            (1_652, 74),
            "The second reading was refused: its values look swapped. I record it as 146 over 88.",
            ("record_blood_pressure", swapped, "call_0"),
        ),
        _turn(
            (1_781, 86),
            "In the diary now: 152/95 with a pulse of 78, and 146/88 (told as 88 over 146, taken "
            "for swapped); a knee twisted on Monday; lisinopril, ginkgo and ibuprofen; mild "
            "dizziness when getting up.",
        ),
    ]


def _coordinating() -> list[Turn]:
    return [
        _turn(
            (731, 47),
            "First the time, and how the runs before this one ended.",
            ("get_current_time", {"timezone": "UTC"}, "call_0"),
            ("previous_runs", {"limit": 5}, "call_0"),
        ),
        _turn((968, 24), "I ask for the weekly review.", ("weekly_review", {}, "call_0")),
        _turn(
            (1_312, 118),
            "Please call your doctor today about the ibuprofen, and do not take more of it until "
            "then: it weakens your lisinopril, and your blood pressure is too high (152/95 and "
            "146/88). Get up slowly while you feel dizzy, and measure again tomorrow morning and "
            "evening. If you faint or your chest hurts, call an ambulance.",
        ),
    ]


def _reading_the_week() -> list[Turn]:
    return [
        _turn(
            (661, 49),
            "",
            ("query_blood_pressure", {"limit": 20}, "call_0"),
            ("query_health_event", {"limit": 20}, "call_0"),
        ),
        _turn(
            (1_104, 53),
            "The newest readings are 152/95 and 146/88, above what is wanted, the lower one five "
            "minutes after the higher one. The knee twisted on Monday is why ibuprofen is taken.",
        ),
    ]


def _reviewing() -> list[Turn]:
    return [
        _turn(
            (484, 44),
            "Both checks at once.",
            ("medication_check", {}, "call_0"),
            ("symptom_check", {}, "call_0"),
        ),
        _turn(
            (847, 97),
            "Ibuprofen with lisinopril needs attention today: it raises the blood pressure, which "
            "is too high. Ibuprofen with ginkgo is worth asking about. The dizziness may come from "
            "lisinopril; nothing is urgent by itself.",
        ),
    ]


def _checking_medication() -> list[Turn]:
    pairs = [{"first": first, "second": second} for first, second, _ in _PAIRS]
    return [
        _turn((508, 22), "", ("query_medication", {"limit": 20}, "")),
        _turn(
            (871, 84),
            "Three medications make three pairs.",
            ("interaction_checks", {"items": pairs}, "call_0"),
        ),
        _turn(
            (1_340, 88),
            "Lisinopril with ibuprofen needs attention: ask the doctor for another painkiller. "
            "Ibuprofen with ginkgo: watch for bleeding. Lisinopril with ginkgo: nothing known.",
        ),
    ]


def _checking_symptoms() -> list[Turn]:
    return [
        _turn(
            (536, 41),
            "",
            ("query_symptom", {"limit": 20}, None),
            ("query_blood_pressure", {"limit": 20}, None),
        ),
        _turn(
            (1_083, 57),
            "Mild dizziness when getting up (起床时头晕), with readings of 152/95 and 146/88: it "
            "fits the medication better than the readings. Not urgent.",
        ),
    ]


def _checking_pair(first: str, second: str, verdict: str) -> list[Turn]:
    return [
        _turn(
            (449, 66),
            "",
            ("query_medication", {"medication_name": first}, "call_0"),
            ("query_medication", {"medication_name": second}, "call_0"),
            ("query_symptom", {"limit": 20}, ""),
        ),
        _turn((878, 46), verdict),
    ]
