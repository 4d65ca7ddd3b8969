"""The reviews that agents open as sub-plans, and their nesting.

No plan names the user: their tools receive the caller's identity.

weekly_review
├─ medication_check
│  └─ interaction_check     one for each pair of medications
└─ symptom_check
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from health.arguments import Name
from tracer import PlanTemplate, StepTemplate


class TwoMedications(BaseModel):
    """Two medications that the user takes."""

    model_config = ConfigDict(extra="forbid")

    first: Annotated[Name, Field(description="One medication's name, as recorded.")]
    second: Annotated[Name, Field(description="The other medication's name, as recorded.")]


WEEKLY_REVIEW = PlanTemplate(
    name="weekly_review",
    description=(
        "Review the user's week: blood pressure, health events, medication and symptoms. Record "
        "what is new before you ask for it."
    ),
    title="Weekly review",
    version="2",
    steps=(
        StepTemplate(
            "Query the newest 20 blood pressure readings and the newest 20 health events, both at "
            "once. Say in two sentences how high the readings are, how they moved, and which event "
            "may have to do with it.",
            agent="nurse",
        ),
        StepTemplate(
            "Ask for a medication check and a symptom check, both at once. Then sum up both, with "
            "what was found in the step before.",
            agent="reviewer",
        ),
    ),
)

MEDICATION_CHECK = PlanTemplate(
    name="medication_check",
    description="Check what the user takes: the medications and how they get along.",
    title="Medication check",
    version="2",
    steps=(
        StepTemplate(
            "Query the user's medication. Check each pair of different medications for "
            "interactions, all pairs with one call. Then name the pairs that need attention, and "
            "why.",
            agent="pharmacist",
        ),
    ),
)

SYMPTOM_CHECK = PlanTemplate(
    name="symptom_check",
    description="Check what the user feels against what was measured.",
    title="Symptom check",
    version="2",
    steps=(
        StepTemplate(
            "Query the newest 20 symptoms and the newest 20 blood pressure readings, both at once. "
            "Say which symptoms may belong to which readings, and which are urgent.",
            agent="nurse",
        ),
    ),
)

INTERACTION_CHECK = PlanTemplate(
    name="interaction_check",
    description="Check whether two of the user's medications interact.",
    title="Interaction check of {first} and {second}",
    version="2",
    parameters=TwoMedications,
    steps=(
        StepTemplate(
            "Query {first} and {second} among the user's medication, and the user's newest 20 "
            "symptoms, all at once. Say whether the two interact, how badly, and whether a symptom "
            "fits.",
            agent="interaction_checker",
        ),
    ),
)
