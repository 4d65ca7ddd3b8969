"""The reviews that agents open as sub-plans, and how they nest.

weekly_review
├─ medication_check
│  └─ interaction_check     one for each pair of medications
└─ symptom_check
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from health.arguments import Name, PatientId
from tracer.runtime.plan import PlanTemplate, StepTemplate

Patient = Annotated[PatientId, Field(description="The patient's id, such as p-1.")]


class OnePatient(BaseModel):
    """The patient that a review is about."""

    model_config = ConfigDict(extra="forbid")

    patient_id: Patient


class TwoMedications(OnePatient):
    """Two medications that a patient takes."""

    first: Annotated[Name, Field(description="One medication's name, as recorded.")]
    second: Annotated[Name, Field(description="The other medication's name, as recorded.")]


WEEKLY_REVIEW = PlanTemplate(
    name="weekly_review",
    description=(
        "Review a patient's week: blood pressure, medication and symptoms. Record what is new "
        "before you ask for it."
    ),
    title="Weekly review of {patient_id}",
    version="1",
    parameters=OnePatient,
    steps=(
        StepTemplate(
            "Query the newest 20 blood pressure readings of patient {patient_id}, and say in two "
            "sentences how high they are and how they moved.",
            agent="nurse",
        ),
        StepTemplate(
            "Ask for a medication check and a symptom check of patient {patient_id}, both at "
            "once. Then sum up both, with the blood pressure found in the step before.",
            agent="reviewer",
        ),
    ),
)

MEDICATION_CHECK = PlanTemplate(
    name="medication_check",
    description="Check what a patient takes: the medications and how they get along.",
    title="Medication check of {patient_id}",
    version="1",
    parameters=OnePatient,
    steps=(
        StepTemplate(
            "Query the medication of patient {patient_id}. Check each pair of different "
            "medications for interactions, all pairs with one call. Then name the pairs that "
            "need attention, and why.",
            agent="pharmacist",
        ),
    ),
)

SYMPTOM_CHECK = PlanTemplate(
    name="symptom_check",
    description="Check what a patient feels against what was measured.",
    title="Symptom check of {patient_id}",
    version="1",
    parameters=OnePatient,
    steps=(
        StepTemplate(
            "Query the newest 20 symptoms and the newest 20 blood pressure readings of patient "
            "{patient_id}, both at once. Say which symptoms may belong to which readings, and "
            "which are urgent.",
            agent="nurse",
        ),
    ),
)

INTERACTION_CHECK = PlanTemplate(
    name="interaction_check",
    description="Check whether two medications of a patient interact.",
    title="Interaction check of {first} and {second}",
    version="1",
    parameters=TwoMedications,
    steps=(
        StepTemplate(
            "Query {first} and {second} among the medication of patient {patient_id}, and the "
            "patient's newest 20 symptoms, all at once. Say whether the two interact, how badly, "
            "and whether a symptom fits.",
            agent="interaction_checker",
        ),
    ),
)
