"""The demonstration: a request, and the script that plays the model while the agents carry it out.

Only the model is played. The plan, the calls, the refused reading and the records are real.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from tracer.errors import ModelError
from tracer.runtime.chat_model import ChosenCall, Generation, Message, ToolSpec
from tracer.runtime.scripted_model import Script, ScriptedModel, ScriptError, Turn, call

PATIENT = "p-1"

REQUEST = f"""\
I am patient {PATIENT}. Please write this down, and review my week.
I just measured 152 over 95 with a pulse of 78, and five minutes later 88 over 146. Besides \
lisinopril 10 mg every morning and ginkgo 120 mg every evening I take ibuprofen 400 mg 3 times a \
day since Monday, for my knee. I feel dizzy when I get up (起床时头晕)."""

_TO_RECORD = (
    f"Record for patient {PATIENT}: blood pressure 152 over 95 with a pulse of 78, then 88 over "
    "146, both measured just now; lisinopril 10 mg every morning, ginkgo 120 mg every evening, "
    "ibuprofen 400 mg 3 times a day since Monday, for the knee; dizziness when getting up, in "
    "the patient's words 起床时头晕."
)
_TO_REVIEW = f"Review the week of patient {PATIENT}, and tell the patient what to do."


def scripted_model() -> ScriptedModel:
    """Return a model that plays one demonstration run, strictly: each turn once and no other."""
    return ScriptedModel(_scripts(times=1))


class DemonstrationModel:
    """Plays the demonstration as often as it is asked for, and can do nothing else.

    It stands in until a real model is configured.
    """

    name = "scripted"

    def __init__(self) -> None:
        self._scripted = ScriptedModel(_scripts(times=None), name=self.name)

    async def complete(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> Generation:
        """Return the next answer of the demonstration; see `ChatModel`.

        Raises:
            ModelError: The conversation is not part of the demonstration.
        """
        try:
            return await self._scripted.complete(messages, tools)
        except ScriptError as error:
            raise ModelError(
                "There is no model here, only the script of the demonstration, and it does not "
                "know this request. Set TRACER_MODEL, for example to openai:gpt-5-mini."
            ) from error


def _scripts(times: int | None) -> list[Script]:
    """Return the demonstration's conversations, for so many runs."""

    def script(agent: str, request: str, *turns: Turn) -> Script:
        return Script(turns, request=request, agent=agent, times=times)

    return [
        script("planner", REQUEST, _plan()),
        script("nurse", _TO_RECORD, *_recording()),
        script("coordinator", _TO_REVIEW, *_coordinating()),
        script("nurse", "say in two sentences how high they are", *_reading_the_week()),
        script("reviewer", "a medication check and a symptom check", *_reviewing()),
        script("pharmacist", "Query the medication of patient", *_checking_medication()),
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
    return Turn(text=text, calls=chosen, input_tokens=tokens[0], output_tokens=tokens[1])


def _plan() -> Turn:
    steps = [
        {"agent": "nurse", "request": _TO_RECORD},
        {"agent": "coordinator", "request": _TO_REVIEW},
    ]
    return _turn((612, 148), orjson.dumps({"steps": steps}).decode())


# Providers repeat their ids, leave them empty or send none: all of it happens here.


def _recording() -> list[Turn]:
    def medication(
        name: str, dosage: str, frequency: str, notes: str | None = None
    ) -> dict[str, object]:
        return {
            "patient_id": PATIENT,
            "medication_name": name,
            "dosage": dosage,
            "frequency": frequency,
            "notes": notes,
        }

    lisinopril = medication("lisinopril", "10 mg", "every morning")
    ginkgo = medication("ginkgo", "120 mg", "every evening")
    ibuprofen = medication("ibuprofen", "400 mg", "3 times a day", "since Monday, for the knee")
    first = {"patient_id": PATIENT, "systolic": 152, "diastolic": 95, "heart_rate": 78}
    second = {"patient_id": PATIENT, "systolic": 88, "diastolic": 146}
    swapped = {
        "patient_id": PATIENT,
        "systolic": 146,
        "diastolic": 88,
        "notes": "told as 88 over 146; taken for swapped",
    }
    dizziness = {
        "patient_id": PATIENT,
        "symptom_name": "dizziness",
        "severity": "mild",
        "notes": "起床时头晕",
    }
    return [
        _turn(
            (934, 287),
            "I record both readings, the three medications and the symptom.",
            ("record_blood_pressure", first, "call_0"),
            ("record_blood_pressure", second, "call_0"),
            ("record_medication", lisinopril, ""),
            ("record_medication", ginkgo, ""),
            ("record_medication", ibuprofen, None),
            ("record_symptom", dizziness, None),
        ),
        _turn(
            (1_583, 74),
            "The second reading was refused: its values look swapped. I record it as 146 over 88.",
            ("record_blood_pressure", swapped, "call_0"),
        ),
        _turn(
            (1_712, 81),
            "In the diary now: 152/95 with a pulse of 78, and 146/88 (told as 88 over 146, taken "
            "for swapped); lisinopril, ginkgo and ibuprofen; mild dizziness when getting up.",
        ),
    ]


def _coordinating() -> list[Turn]:
    return [
        _turn(
            (702, 29),
            "I ask for the weekly review.",
            ("weekly_review", {"patient_id": PATIENT}, "call_0"),
        ),
        _turn(
            (1_046, 118),
            "Please call your doctor today about the ibuprofen, and do not take more of it until "
            "then: it weakens your lisinopril, and your blood pressure is too high (152/95 and "
            "146/88). Get up slowly while you feel dizzy, and measure again tomorrow morning and "
            "evening. If you faint or your chest hurts, call an ambulance.",
        ),
    ]


def _reading_the_week() -> list[Turn]:
    return [
        _turn(
            (655, 31),
            "",
            ("query_blood_pressure", {"patient_id": PATIENT, "limit": 20}, "call_0"),
        ),
        _turn(
            (987, 44),
            "The newest readings are 152/95 and 146/88, above what is wanted. The lower one came "
            "five minutes after the higher one.",
        ),
    ]


def _reviewing() -> list[Turn]:
    return [
        _turn(
            (498, 52),
            "Both checks at once.",
            ("medication_check", {"patient_id": PATIENT}, "call_0"),
            ("symptom_check", {"patient_id": PATIENT}, "call_0"),
        ),
        _turn(
            (861, 97),
            "Ibuprofen with lisinopril needs attention today: it raises the blood pressure, which "
            "is too high. Ibuprofen with ginkgo is worth asking about. The dizziness may come from "
            "lisinopril; nothing is urgent by itself.",
        ),
    ]


def _checking_medication() -> list[Turn]:
    pairs = [
        {"patient_id": PATIENT, "first": first, "second": second} for first, second, _ in _PAIRS
    ]
    return [
        _turn((521, 26), "", ("query_medication", {"patient_id": PATIENT, "limit": 20}, "")),
        _turn(
            (894, 103),
            "Three medications make three pairs.",
            ("interaction_checks", {"items": pairs}, "call_0"),
        ),
        _turn(
            (1_377, 88),
            "Lisinopril with ibuprofen needs attention: ask the doctor for another painkiller. "
            "Ibuprofen with ginkgo: watch for bleeding. Lisinopril with ginkgo: nothing known.",
        ),
    ]


def _checking_symptoms() -> list[Turn]:
    return [
        _turn(
            (548, 49),
            "",
            ("query_symptom", {"patient_id": PATIENT, "limit": 20}, None),
            ("query_blood_pressure", {"patient_id": PATIENT, "limit": 20}, None),
        ),
        _turn(
            (1_102, 57),
            "Mild dizziness when getting up (起床时头晕), with readings of 152/95 and 146/88: it "
            "fits the medication better than the readings. Not urgent.",
        ),
    ]


def _checking_pair(first: str, second: str, verdict: str) -> list[Turn]:
    return [
        _turn(
            (463, 78),
            "",
            ("query_medication", {"patient_id": PATIENT, "medication_name": first}, "call_0"),
            ("query_medication", {"patient_id": PATIENT, "medication_name": second}, "call_0"),
            ("query_symptom", {"patient_id": PATIENT, "limit": 20}, ""),
        ),
        _turn((902, 46), verdict),
    ]
