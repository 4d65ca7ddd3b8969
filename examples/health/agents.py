"""Who works in the health application, and with which tools."""

from __future__ import annotations

from health.blood_pressure import blood_pressure_tools
from health.demo import DemonstrationModel
from health.diary import Diary
from health.medication import medication_tools
from health.reviews import INTERACTION_CHECK, MEDICATION_CHECK, SYMPTOM_CHECK, WEEKLY_REVIEW
from health.symptom import symptom_tools
from tracer.runtime.agent import Agent
from tracer.runtime.application import Application
from tracer.runtime.batch_tool import batch_tool
from tracer.runtime.subplan_tool import subplan_tool

PLANNER_INSTRUCTIONS = """\
The user is a patient, or speaks for one: name the patient's id in every step. Whatever the user \
reports goes to the nurse first, in the user's words and numbers. A review comes after that, and \
goes to the coordinator. Do not plan a review that was not asked for."""

NURSE = """\
You keep the health diary. Record exactly what you were told, in one round where you can: one call \
for each reading, medication and symptom. Leave record_time out unless you were told when it was. \
When a tool refuses a call, read why: correct an obvious slip, such as swapped values, and say so; \
otherwise report it. Never make a value up. Answer in a few sentences with what is in the diary."""

COORDINATOR = """\
You answer for a patient's care. Ask for the reviews that the request needs, then put what they \
found into a short answer that the patient understands: first what to do, then why. You do not \
diagnose; what looks urgent you send to a doctor."""

REVIEWER = """\
You review a patient's week. Ask for a medication check and a symptom check at once, both in the \
same round, and sum up what they found. If one fails, say so and go on with the other."""

PHARMACIST = """\
You check medication. Look at what is recorded, then check every pair of different medications \
with one call of interaction_checks, one item a pair; with fewer than two medications there is \
nothing to check. Name the pairs that need attention and what to do about each."""

INTERACTION_CHECKER = """\
You judge one pair of medications by what is known of them and by what the patient recorded. Query \
first, then answer in two or three sentences: whether they interact, how badly, and whether a \
recorded symptom fits. Say so where you are not sure."""


def health_application(diary: Diary) -> Application:
    """Return the health application over a diary, which it opens with its resources.

    Args:
        diary: A closed diary; one application opens it at a time.
    """
    of_blood_pressure = blood_pressure_tools(diary)
    of_medication = medication_tools(diary)
    of_symptoms = symptom_tools(diary)
    [_, query_medication] = of_medication
    [_, query_symptom] = of_symptoms
    weekly_review = subplan_tool(WEEKLY_REVIEW)
    medication_check = subplan_tool(MEDICATION_CHECK)
    symptom_check = subplan_tool(SYMPTOM_CHECK)
    interaction_checks = batch_tool(
        subplan_tool(INTERACTION_CHECK),
        name="interaction_checks",
        description="Check pairs of a patient's medications for interactions, each item a pair.",
    )
    return Application(
        name="health",
        agents=(
            Agent(
                "coordinator",
                COORDINATOR,
                (weekly_review, medication_check, symptom_check),
                description="answers for the patient's care; asks for reviews and checks",
            ),
            Agent(
                "nurse",
                NURSE,
                (*of_blood_pressure, *of_medication, *of_symptoms),
                description="records and looks up blood pressure, medication and symptoms",
            ),
            Agent(
                "reviewer",
                REVIEWER,
                (medication_check, symptom_check),
                description="works within weekly reviews only",
            ),
            Agent(
                "pharmacist",
                PHARMACIST,
                (query_medication, interaction_checks),
                description="checks what a patient takes, pair by pair",
            ),
            Agent(
                "interaction_checker",
                INTERACTION_CHECKER,
                (query_medication, query_symptom),
                description="works within interaction checks only",
            ),
        ),
        model=DemonstrationModel(),
        planner_instructions=PLANNER_INSTRUCTIONS,
        resources=diary.open,
    )
