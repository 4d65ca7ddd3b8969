"""What the scripted model answers, in words that fit every program.

A conversation is recognized by the tag in its first user message, such as `[pair/a]`. Its answers
are listed here in order; after the last one, the last one is repeated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Shell:
    """A call that runs a command."""

    command: str
    fails: bool = False
    """Whether the command exits with a code other than 0."""


@dataclass(frozen=True)
class Delegate:
    """A call that starts a sub-agent."""

    to: str
    """The tag of the sub-agent's conversation."""
    prompt: str
    in_background: bool | None = None
    """None: what the program does by default."""


@dataclass(frozen=True)
class Await:
    """A call that waits for the sub-agents, in programs whose delegating call does not wait."""


@dataclass(frozen=True)
class Finish:
    """A call with the answer of a sub-agent, in programs whose sub-agents answer by a call."""

    answer: str


Step = Shell | Delegate | Await | Finish
Turn = str | tuple[Step, ...]
"""An answer of the model: a text, or calls."""


@dataclass(frozen=True)
class Scenario:
    """The prompts of a person, and the model's answers by tag."""

    prompts: tuple[str, ...]
    script: Mapping[str, tuple[Turn, ...]]
    killed_in: str | None = None
    """The program is killed a second after the model asked for this command."""


SCENARIOS = {
    "single": Scenario(
        ("[single] Find the low tide of Brest.",),
        {
            "single": ((Delegate("single/a", "Find the tide."),), "The tide is lowest at 06:12."),
            "single/a": (
                (Shell("sleep 0.4; echo tide-0612"), Shell("echo notes")),
                (Shell("sleep 0.2; echo checked"),),
                "Lowest at 06:12.",
            ),
        },
    ),
    "pair": Scenario(
        ("[pair] Count the moons and the rings.",),
        {
            "pair": (
                (
                    Delegate("pair/a", "Count the moons."),
                    Delegate("pair/b", "Count the rings."),
                ),
                (Shell("echo own; exit 3", fails=True),),
                "Both are counted.",
            ),
            "pair/a": ((Shell("sleep 0.4; echo moons-95"),), "There are 95 moons."),
            "pair/b": (
                (Shell("sleep 0.3; echo rings-7"),),
                (Shell("echo missing; exit 4", fails=True),),
                "There are 7 rings.",
            ),
        },
    ),
    "parallel": Scenario(
        ("[parallel] Find three tides.",),
        {
            "parallel": (
                (
                    Delegate("parallel/a", "Find the tide of Brest."),
                    Delegate("parallel/b", "Find the tide of Brest."),
                    Shell("sleep 0.1; echo main-own"),
                    Delegate("parallel/c", "Find the tide of Roscoff."),
                ),
                "All three are known.",
            ),
            "parallel/a": ((Shell("sleep 0.5; echo a-one"),), "A is done."),
            "parallel/b": ((Shell("sleep 0.3; echo b-one"), Shell("echo b-two")), "B is done."),
            "parallel/c": (
                (Shell("sleep 0.4; echo c-one"),),
                (Shell("sleep 0.1; echo c-two"),),
                "C is done.",
            ),
        },
    ),
    "nested": Scenario(
        ("[nested] Have the tides looked after.",),
        {
            "nested": ((Delegate("nested/a", "Delegate further."),), "Nested is done."),
            "nested/a": (
                (
                    Shell("sleep 0.1; echo outer"),
                    Delegate("nested/a/a", "Go deeper."),
                    Delegate("nested/a/b", "Go deeper too."),
                ),
                "Outer is done.",
            ),
            "nested/a/a": ((Shell("sleep 0.4; echo deep-a"),), "Deep A is done."),
            "nested/a/b": ((Shell("sleep 0.3; echo deep-b"),), "Deep B is done."),
        },
    ),
    "background": Scenario(
        ("[background] Start the long work.",),
        {
            "background": (
                (Delegate("background/a", "Work quietly.", in_background=True),),
                (Shell("sleep 0.2; echo main-goes-on"),),
                "Started it.",
                "The background work is done.",
            ),
            "background/a": (
                (Shell("sleep 2; echo quiet-one"),),
                (Shell("sleep 0.2; echo quiet-two"),),
                "Quiet work done.",
            ),
        },
    ),
    "killed": Scenario(
        ("[killed] Work until you are killed.",),
        {
            "killed": (
                (Delegate("killed/a", "Work until killed."), Delegate("killed/b", "End early.")),
                "Started both.",
            ),
            "killed/a": ((Shell("echo before"),), (Shell("sleep 1; sleep 60"),), "Never said."),
            "killed/b": ((Shell("sleep 0.1; echo early"),), "B ended early."),
        },
        killed_in="sleep 1; sleep 60",
    ),
    "turns": Scenario(
        ("[turns] This is the first question.", "This is the second question."),
        {
            "turns": (
                (Delegate("turns/a", "First question.", in_background=False),),
                "First answer.",
                (Delegate("turns/b", "Second question.", in_background=False),),
                "Second answer.",
            ),
            "turns/a": ((Shell("sleep 0.2; echo first"),), "First found."),
            "turns/b": ((Shell("sleep 0.2; echo second"),), "Second found."),
        },
    ),
}
