"""Trajectories: which calls a run must make, in files, compared with runs and written from runs.

A part that a trajectory does not state is not checked, with one exception: if its order is `strict`
or `any`, the run may make no other calls. The JSON Schema of the files is
`docs/trajectory.schema.json`. All functions but `read_file` and `write_file` are pure.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal

import jsonschema_rs
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tracer.errors import ConfigurationError
from tracer.lineage.diff import aligned
from tracer.questions import shown as shown_text
from tracer.reading import Call, Plan

# --- The format of files.


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class ExpectedCall(_Part):
    """A tool call. Without `call`, it is a hand-off: a sub-agent that no tool call opened."""

    call: str | None = None
    """The name of the tool."""
    arguments: Any = None
    """The arguments, as values. In place of any value: `{$pattern: REGEX}` for a text that matches
    completely, `{$jsonSchema: SCHEMA}`, or `{$ignored: true}`. Omitted: not checked."""
    status: str | None = None
    """The status, such as `failed`. Omitted: not checked."""
    opens: Trajectory | list[Trajectory] | Literal["ignored"] = Field(default_factory=list)
    """The trajectories of the sub-agents that the call opens, or `ignored`. Omitted: it must open
    none, unless the order is `subset`."""

    @property
    def sub_agents(self) -> list[Trajectory]:
        """The trajectories of the sub-agents."""
        if isinstance(self.opens, Trajectory):
            return [self.opens]
        return self.opens if isinstance(self.opens, list) else []


class ForbiddenCall(_Part):
    """A tool call that must not happen."""

    call: str
    """The name of the tool."""
    arguments: Any = None
    """The arguments of forbidden calls, as in `rounds`. Omitted: all calls of the tool."""


class Limits(_Part):
    """Limits of a run or a sub-agent, with everything below it."""

    rounds: int | None = None
    """The largest number of model calls."""
    tokens: int | None = None
    """The largest number of input and output tokens."""
    cost: float | None = None
    """The highest cost in US dollars. An unknown cost exceeds it."""
    seconds: int | float | None = None
    """The longest duration."""


class Trajectory(_Part):
    """The calls and the outcome of an agent."""

    agent: str | None = None
    """The name of the agent."""
    status: str | None = None
    """The status at the end, such as `succeeded`."""
    order: Literal["strict", "any", "subset"] = "strict"
    """`strict`: these rounds in this order; the calls of one round may be in any order. `any`:
    these calls in any order. `subset`: at least these calls, in any order."""
    rounds: list[ExpectedCall | list[ExpectedCall]] | None = None
    """The rounds that call tools. Each is one call or a list of calls."""
    never: list[str | ForbiddenCall] = Field(default_factory=list)
    """Calls that neither the agent nor an agent below it may make."""
    limits: Limits = Field(default_factory=Limits)


class TrajectoryFile(Trajectory):
    """A trajectory of a run."""

    version: Annotated[Literal[1], Field(description="The version of the format.")]


class _Loader(yaml.SafeLoader):
    """Reads dates, and words such as `on` and `no`, as text, because arguments are JSON."""


_BOOL, _TIMESTAMP = "tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp"
_Loader.yaml_implicit_resolvers = {
    key: [each for each in resolvers if each[0] not in (_BOOL, _TIMESTAMP)]
    for key, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, re.compile("^(?:true|false)$"), ["t", "f"])


def read_file(path: Path) -> TrajectoryFile:
    """Return the trajectory of a file.

    Raises:
        ConfigurationError: The file is missing, or is no trajectory.
    """
    __tracebackhide__ = True  # pytest then shows the line of the test
    try:
        return TrajectoryFile.model_validate(yaml.load(path.read_text("utf-8"), _Loader))
    except FileNotFoundError:
        raise ConfigurationError(
            f"{path} does not exist. Run pytest --update-trajectories to write it from the run."
        ) from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is not YAML: {error}") from error
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:3]
        ]
        raise ConfigurationError(f"{path} is not a trajectory: {'; '.join(problems)}.") from None


def write_file(path: Path, trajectory: TrajectoryFile) -> None:
    """Write a trajectory to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(
        _plain(trajectory), sort_keys=False, allow_unicode=True, default_flow_style=False, width=100
    )
    complete = path.with_name(f".{path.name}.{os.getpid()}")
    complete.write_text(text, "utf-8")
    complete.replace(path)  # another worker of pytest-xdist may read it


def _plain(value: Any) -> Any:
    """Return the fields that are set, the version first."""
    if isinstance(value, BaseModel):
        names = sorted(type(value).model_fields, key="version".__ne__)
        return {n: _plain(getattr(value, n)) for n in names if n in value.model_fields_set}
    return [_plain(each) for each in value] if isinstance(value, list) else value


# --- The comparison of values.

_PATTERN, _SCHEMA, _IGNORED = "$pattern", "$jsonSchema", "$ignored"
_MATCHERS = (_PATTERN, _SCHEMA, _IGNORED)


def value_differences(wanted: Any, value: Any, path: str = "") -> Iterator[str]:
    """Yield a phrase for each difference between a value and the expected one."""
    name = f"argument `{path}`" if path else "arguments"
    match wanted:
        case {"$pattern": pattern} if len(wanted) == 1:
            if not isinstance(value, str) or not re.fullmatch(str(pattern), value, re.DOTALL):
                yield f"{name}: {shown(value)} does not match {pattern}"
        case {"$jsonSchema": schema} if len(wanted) == 1:
            for error in jsonschema_rs.validator_for(schema).iter_errors(value):
                yield f"{name}: {error.message}"
                return
        case {"$ignored": _} if len(wanted) == 1:
            return
        case dict() if isinstance(value, dict):
            for key in [*wanted, *(each for each in value if each not in wanted)]:
                below = f"{path}.{key}" if path else str(key)
                if key not in value:
                    yield f"argument `{below}` is missing, expected {shown(wanted[key])}"
                elif key not in wanted:
                    yield f"argument `{below}`: {shown(value[key])} is not expected"
                else:
                    yield from value_differences(wanted[key], value[key], below)
        case list() if isinstance(value, list) and len(value) == len(wanted):
            for index, each in enumerate(wanted):
                yield from value_differences(each, value[index], f"{path}[{index}]")
        case _:
            # In Python, True equals 1.
            if isinstance(wanted, bool) != isinstance(value, bool) or wanted != value:
                yield f"{name}: {shown(value)} instead of {shown(wanted)}"


def shown(value: Any) -> str:
    """Return a value as JSON, on one line and shortened."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…"


SHOWN_CHARACTERS = 120


# --- The comparison of a run.

Item = Call | Plan
"""A call, or the plan of a hand-off."""


@dataclass
class Comparison:
    """The differences between a run and a trajectory."""

    sentences: list[str] = field(default_factory=list)
    """One for each difference."""
    notes: dict[str, list[str]] = field(default_factory=dict)
    """The phrases for the differences of each record, by its id."""
    added: set[str] = field(default_factory=set)
    """The ids of calls and plans that the trajectory does not list."""
    missing: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    """Items that did not happen, by the id of a plan and the number of the round, from 0."""
    expected: dict[str, ExpectedCall] = field(default_factory=dict)
    """The expected item that each call, or plan of a hand-off, was compared with, by id."""

    def note(self, record_id: str, where: str, phrase: str) -> None:
        """Add a difference of a record."""
        self.sentences.append(f"{where}: {phrase}.")
        self.notes.setdefault(record_id, []).append(phrase)


@dataclass
class _Missing:
    item: ExpectedCall
    number: int
    """The number of its round in the file, from 1."""
    before: int
    """The number of the agent's round before which it is shown, from 0."""


def compare(plan: Plan, wanted: Trajectory) -> Comparison:
    """Compare a run with a trajectory.

    Raises:
        ConfigurationError: A pattern or a JSON Schema of the trajectory is invalid.
    """
    comparison = Comparison()
    try:
        _compare(plan, wanted, comparison)
    except (re.error, ValueError) as error:
        raise ConfigurationError(f"A pattern or schema of the file is invalid: {error}") from error
    return comparison


def _compare(plan: Plan, wanted: Trajectory, result: Comparison) -> None:
    name = plan.agent or plan.node.title or "agent"
    for what, value, expected in (
        ("the agent", plan.agent, wanted.agent),
        ("the status", plan.status, wanted.status),
    ):
        if expected is not None and value != expected:
            result.note(plan.id, name, f"{what} is {value}, expected {expected}")
    if wanted.rounds is not None:
        _compare_rounds(plan, name, wanted, result)
    for rule in wanted.never:
        forbidden = ForbiddenCall(call=rule) if isinstance(rule, str) else rule
        for call in plan.calls(forbidden.call):
            if not _argument_differences(forbidden, call):
                result.note(call.id, name, f"`{call.name}` must never be called")
    _check_limits(plan, name, wanted.limits, result)


def _compare_rounds(plan: Plan, name: str, wanted: Trajectory, result: Comparison) -> None:
    expected: list[Any] = [
        each if isinstance(each, list) else [each] for each in wanted.rounds or ()
    ]
    numbers = [number for number, each in enumerate(plan.rounds) if each.calls or each.opens]
    actual: list[Any] = [[*plan.rounds[n].calls, *plan.rounds[n].opens] for n in numbers]
    number_of = {each.id: n for n, items in zip(numbers, actual, strict=True) for each in items}
    if wanted.order != "strict":
        expected, actual = [[*chain(*expected)]], [[*chain(*actual)]]
    missing: list[_Missing] = []
    added: list[Item] = []
    before = 0
    keys: list[Callable[[list[Any]], tuple[object, ...]]] = [_names, lambda _: ()]
    number = 0
    for left, right in aligned(expected, actual, keys):
        number += left is not None
        if right:
            before = number_of[right[-1].id] + 1
        pairs = _pairs(left or [], right or [])
        paired = {id(each) for pair in pairs for each in pair}
        added += (each for each in right or () if id(each) not in paired)
        missing += (_Missing(e, number, before) for e in left or () if id(e) not in paired)
        for item, of_run in pairs:
            result.expected[of_run.id] = item
            where = f"{name}, round {number_of[of_run.id] + 1}"
            _compare_item(item, of_run, where, wanted.order == "subset", result)
    for item, of_run in _pairs([each.item for each in missing], added):  # in another order
        [moved] = [each for each in missing if each.item is item]
        missing.remove(moved)
        added = [each for each in added if each is not of_run]
        result.expected[of_run.id] = item
        place = number_of[of_run.id] + 1
        phrase = f"{_title(of_run)} is in round {place}, expected in round {moved.number}"
        result.note(of_run.id, name, phrase)
        _compare_item(item, of_run, f"{name}, round {place}", wanted.order == "subset", result)
    for each in missing:
        result.sentences.append(f"{name}: {_title(each.item)} is missing.")
        text = _expected_text(each.item)
        result.missing.setdefault((plan.id, each.before), []).append(text)
    for of_run in added if wanted.order != "subset" else ():
        result.added.add(of_run.id)
        where = f"{name}, round {number_of[of_run.id] + 1}"
        result.note(of_run.id, where, f"{_title(of_run)} is not expected")


def _compare_item(
    item: ExpectedCall, of_run: Item, where: str, is_subset: bool, result: Comparison
) -> None:
    if isinstance(of_run, Call):
        where += f", `{of_run.name}`"
        for phrase in _argument_differences(item, of_run):
            result.note(of_run.id, where, phrase)
    if item.status is not None and of_run.status != item.status:
        result.note(of_run.id, where, f"the status is {of_run.status}, expected {item.status}")
    opened = of_run.opens if isinstance(of_run, Call) else [of_run]
    if item.opens == "ignored" or (is_subset and not item.sub_agents):
        return
    for below, plan in zip_longest(item.sub_agents, opened):
        if below is None:
            result.added.add(plan.id)
            result.note(plan.id, where, f"{_title(plan)} is not expected")
        elif plan is None:
            result.note(of_run.id, where, f"opened no agent {below.agent or ''}".rstrip())
        else:
            _compare(plan, below, result)


def _argument_differences(item: ExpectedCall | ForbiddenCall, call: Call) -> list[str]:
    if "arguments" not in item.model_fields_set:
        return []
    return list(value_differences(item.arguments, call.arguments))


def _check_limits(plan: Plan, name: str, limits: Limits, result: Comparison) -> None:
    for what, limit in limits:
        value = figures(plan)[what]
        if limit is None or (value is not None and value <= limit):
            continue
        if value is None and what == "seconds":
            continue  # it runs
        known = f"{value:g}" if value is not None else "unknown, because a model has no price"
        result.note(plan.id, name, f"{what}: {known}, the limit is {limit:g}")


def figures(plan: Plan) -> dict[str, float | None]:
    """Return the figures of a plan that have limits."""
    rounds = sum(each.node is not None for below in plan.plans() for each in below.rounds)
    cost = None if plan.node.cumulative.unpriced_calls else plan.cost
    return {"rounds": rounds, "tokens": plan.tokens, "cost": cost, "seconds": plan.seconds}


# --- Pairs of expected items and items of a run.


def _pairs(
    wanted: Sequence[ExpectedCall], items: Sequence[Item]
) -> list[tuple[ExpectedCall, Item]]:
    """Match items by name, as many as possible, those that agree most first."""
    agree: dict[tuple[int, int], int] = {}
    for i, item in enumerate(wanted):
        for j, of_run in enumerate(items):
            if _name(item) == _name(of_run):
                agree[i, j] = 0
    for i, j in agree if len(agree) > 1 else ():
        trial = Comparison()
        _compare_item(wanted[i], items[j], "", False, trial)
        agree[i, j] = len(trial.sentences)
    found: dict[int, int] = {}
    for most in sorted({0, *agree.values()}):
        taken = set(found.values())
        edges: dict[int, list[int]] = {}
        for (i, j), count in agree.items():
            if count <= most and i not in taken and j not in found:
                edges.setdefault(i, []).append(j)
        of_level: dict[int, int] = {}
        for i in edges:
            _augment(i, edges, of_level, set())
        found |= of_level
    return [(wanted[i], items[j]) for j, i in sorted(found.items())]


def _augment(i: int, edges: Mapping[int, list[int]], found: dict[int, int], seen: set[int]) -> bool:
    """Add a match for `i`, moving others if necessary (the algorithm of Kuhn)."""
    for j in sorted(edges[i], key=found.__contains__):  # free ones first
        if j not in seen:
            seen.add(j)
            if j not in found or _augment(found[j], edges, found, seen):
                found[j] = i
                return True
    return False


def _names(items: Sequence[Item | ExpectedCall]) -> tuple[object, ...]:
    return tuple(sorted(_name(each) for each in items))


def _name(item: Item | ExpectedCall) -> str:
    if isinstance(item, ExpectedCall):
        return item.call or ""
    return item.name if isinstance(item, Call) else ""


def _title(item: Item | ExpectedCall) -> str:
    if name := _name(item):
        return f"the call `{name}`"
    if isinstance(item, ExpectedCall):
        return f"the agent {item.sub_agents[0].agent if item.sub_agents else '(any)'}"
    return f"the agent {item.agent if isinstance(item, Plan) else ''}"


def _expected_text(item: ExpectedCall) -> str:
    if item.call is None:
        return _title(item)
    return f"{item.call} {shown(item.arguments)}" if item.arguments is not None else item.call


# --- The tree of a run with its differences.


def difference_lines(plan: Plan, comparison: Comparison, name: str) -> list[str]:
    """Return the differences between a run and the trajectory `name`, and the run's tree."""
    sentences = [shown_text(f"  {n}. {each}") for n, each in enumerate(comparison.sentences, 1)]
    first = f"The run differs from {name}:" if sentences else f"The run matches {name}."
    return [first, *sentences, "", *marked_tree(plan, comparison)]


MOST_LINES = 100
"""A longer tree is shown in part."""
AROUND = 5
"""The number of lines that are shown before and after a difference of such a tree."""


def marked_tree(plan: Plan, comparison: Comparison) -> list[str]:
    """Return the lines of a run's tree. `+` marks added, `-` missing and `!` changed items.

    Only the beginning and the surroundings of differences are returned if the tree is long.
    """
    lines = [*map(shown_text, _plan_lines(plan, comparison, ""))]
    if len(lines) <= MOST_LINES:
        return lines
    marked = [0, *(number for number, line in enumerate(lines) if not line.startswith(" "))]
    near = {each + n for each in marked for n in range(-AROUND, AROUND + 1)}
    parts: list[str] = []
    for is_near, group in groupby(enumerate(lines), key=lambda pair: pair[0] in near):
        of_group = [line for _, line in group]
        parts += of_group if is_near else [f"  … {len(of_group)} lines"]
    return parts


def _plan_lines(plan: Plan, marks: Comparison, margin: str) -> Iterator[str]:
    yield _line(
        plan.id, f"{margin}{plan.agent or plan.node.title or 'agent'}: {plan.status}", marks
    )
    for number in range(len(plan.rounds) + 1):
        for text in marks.missing.get((plan.id, number), ()):
            yield f"- {margin}    {text}  ← missing"
        if number == len(plan.rounds):
            return
        each = plan.rounds[number]
        answer = f"  {shown(each.thought)}" if each.thought else ""
        yield f"  {margin}  round {number + 1}{answer}"
        for call in each.calls:
            arguments = shown(call.arguments)
            failed = f": {call.status} {call.error or ''}" if call.status != "succeeded" else ""
            yield _line(call.id, f"{margin}    {call.name} {arguments}{failed}", marks)
            for below in call.opens:
                yield from _plan_lines(below, marks, f"{margin}      ")
        for below in each.opens:
            yield from _plan_lines(below, marks, f"{margin}    ")


def _line(record_id: str, text: str, marks: Comparison) -> str:
    notes = marks.notes.get(record_id, ())
    sign = "+" if record_id in marks.added else "!" if notes else " "
    return f"{sign} {text}" + (f"  ← {'; '.join(notes)}" if notes else "")


# --- The trajectory of a run.

_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_DATE = r"\d{4}-\d\d-\d\d"
_TIME = r"\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"
_TEMPORARY = rf"(?:{re.escape(tempfile.gettempdir())}|/tmp|(?:/private)?/var/folders)/[^\s\"']+"
_VOLATILE: dict[str, str] = {
    r"\[masked: [a-z0-9_ ]+\]": r"\[masked: [a-z0-9_ ]+\]",
    _UUID: "[0-9a-fA-F-]{36}",
    r"\b[0-9a-f]{32}\b": "[0-9a-f]{32}",
    f"{_DATE}[T ]{_TIME}": rf"{_DATE}[T ][\d:.,Z+-]+",
    _DATE: _DATE,
    r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?": r"\d\d:\d\d:\d\d[\d.,]*",
    _TEMPORARY: r"/[^\s\"']+",
}
"""Texts that differ in each run, and the pattern that is written in their place."""
_ANY_VOLATILE = re.compile("|".join(f"({each})" for each in _VOLATILE))
_SPECIAL = re.compile(r"[.^$*+?{}\[\]\\|()]")
_EPOCHS = ((1.5e9, 2.5e9), (1.5e12, 2.5e12))
"""Numbers that look like a time in seconds or milliseconds."""

LEAST_SECONDS = 5
"""The least limit of time that is written, because machines of CI are slow at times."""


def trajectory_of(plan: Plan, earlier: Trajectory | None = None) -> TrajectoryFile:
    """Return the trajectory of a run, with limits of twice the observed figures.

    Args:
        plan: The run.
        earlier: The trajectory that the new one replaces. Its order, what it forbids, its patterns
            that match and its limits that hold are retained.
    """
    expected = {} if earlier is None else compare(plan, earlier).expected
    return TrajectoryFile(version=1, **_parts_of(plan, earlier, expected, is_root=True))


def _limit(name: str, value: float) -> float:
    if name == "seconds":
        return max(LEAST_SECONDS, math.ceil(2 * value))
    return float(f"{2 * value:.3g}") if name == "cost" else 2 * value


def _parts_of(
    plan: Plan,
    earlier: Trajectory | None,
    expected: Mapping[str, ExpectedCall],
    is_root: bool = False,
) -> dict[str, Any]:
    parts: dict[str, Any] = {} if plan.agent is None else {"agent": plan.agent}
    parts["status"] = plan.status
    is_subset = earlier is not None and earlier.order == "subset"
    if earlier is not None:
        parts |= {
            name: getattr(earlier, name) for name in earlier.model_fields_set & {"order", "never"}
        }
    rounds = []
    for each in plan.rounds:
        items: list[Item] = [*each.calls, *each.opens]
        calls = [_call_of(item, expected) for item in items if not is_subset or item.id in expected]
        if calls:
            rounds.append(calls[0] if len(calls) == 1 else calls)
    parts["rounds"] = rounds
    limits = {} if earlier is None else earlier.limits.model_dump(exclude_none=True)
    for name, value in figures(plan).items():
        if value and (is_root or name in limits) and not value <= limits.get(name, 0):
            limits[name] = _limit(name, value)
    return parts | {"limits": Limits(**limits)} if limits else parts


def _call_of(item: Item, expected: Mapping[str, ExpectedCall]) -> ExpectedCall:
    earlier = expected.get(item.id)
    fields: dict[str, Any] = {}
    if isinstance(item, Call):
        fields["call"] = item.name
        if earlier is None or "arguments" in earlier.model_fields_set:
            fields["arguments"] = _written(item.arguments, earlier and earlier.arguments)
        if item.status != "succeeded":
            fields["status"] = item.status
    if earlier is not None and earlier.opens == "ignored":
        fields["opens"] = "ignored"
    elif opened := item.opens if isinstance(item, Call) else [item]:
        known = earlier.sub_agents if earlier is not None else []
        below = [
            Trajectory(**_parts_of(plan, known[n] if n < len(known) else None, expected))
            for n, plan in enumerate(opened)
        ]
        fields["opens"] = below[0] if len(below) == 1 else below
    return ExpectedCall(**fields)


def _written(value: Any, earlier: Any) -> Any:
    """Return an argument as a file states it, with an earlier pattern if it matches."""
    if isinstance(earlier, dict) and len(earlier) == 1 and set(earlier) <= set(_MATCHERS):
        if not list(value_differences(earlier, value)):
            return earlier
        earlier = None
    match value:
        case dict() if len(value) == 1 and set(value) <= set(_MATCHERS):
            return {_SCHEMA: {"const": value}}
        case dict():
            known = earlier if isinstance(earlier, dict) else {}
            return {key: _written(each, known.get(key)) for key, each in value.items()}
        case list():
            parts = earlier if isinstance(earlier, list) and len(earlier) == len(value) else []
            return [_written(*pair) for pair in zip_longest(value, parts)]
        case str() if _ANY_VOLATILE.search(value):
            return {_PATTERN: _pattern_of(value)}
        case float() | int() if any(low <= value <= high for low, high in _EPOCHS):
            return {_SCHEMA: {"type": "number"}}
    return value


def _pattern_of(text: str) -> str:
    """Return a pattern that matches a text with other times, UUIDs, temporary paths and masks."""
    written, at, patterns = "", 0, list(_VOLATILE.values())
    for found in _ANY_VOLATILE.finditer(text):
        written += _SPECIAL.sub(r"\\\g<0>", text[at : found.start()])
        written += patterns[(found.lastindex or 1) - 1]
        at = found.end()
    return written + _SPECIAL.sub(r"\\\g<0>", text[at:])
