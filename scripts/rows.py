"""Write the rows of trees: `make fields`.

They are between lines that start with `# Rows:`. A row has the fields of its record class, except
those of all rows and those marked `Shown.ALONE`. Each text marked `Shown.CUT` has two more fields:
its size in bytes (null for a null text), and whether it was cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

from pydantic.fields import FieldInfo

from tracer.lineage import Row
from tracer.records import Kind
from tracer.records.record_classes import RECORDS, Inferred, Outcome, Record, Shown

ROOT = Path(__file__).parent.parent
FILE = ROOT / "tracer/lineage/tree.py"

AS_TEXT = {"UUID": "Id", "Status": "str", "Decimal": "float"}
"""The types of rows that differ from those of records."""

CLASSES = {
    Kind.PLAN: ("Plan", "A plan without its steps"),
    Kind.STEP: ("Step", "A step without its rounds"),
    Kind.THINK_ACT: ("ThinkAct", "A round without its tool calls"),
    Kind.TOOL_CALL: ("ToolCall", "A tool call without its sub-plans"),
}

SECTION = re.compile(
    r"(?<=^# Rows: `make fields` writes them\.\n).*?(?=^# Rows: end\.$)", re.M | re.S
)


def updated() -> str:
    """Return the content of `FILE` with the current fields."""
    classes = "".join(_row(kind) for kind in CLASSES)
    return SECTION.sub(lambda _: f"\n\n{classes}", FILE.read_text("utf-8"))


def _row(kind: Kind) -> str:
    name, what = CLASSES[kind]
    lines = [
        f"class {name}Row(Row, tag=Kind.{kind.name}.value):",
        f'    """{what}."""\n',
        f"    kind: ClassVar[Kind] = Kind.{kind.name}\n",
    ]
    for field, info in _fields(kind):
        type_ = _type(info.annotation)
        lines.append(f"    {field}: {type_} = {_default(type_)}")
        lines += _size(field, info)
    return "\n".join(lines) + "\n\n\n"


def _fields(kind: Kind) -> Iterator[tuple[str, FieldInfo]]:
    """Yield the fields of a row that not all rows have, texts that are cut at the end."""
    fields = RECORDS[kind].model_fields
    elsewhere = {*Row.__struct_fields__, *Record.model_fields, *Outcome.model_fields}
    names = ["root_plan_id"] if kind is Kind.PLAN else []
    names += [name for name in fields if name not in elsewhere]
    names.sort(key=lambda name: (Shown.CUT in fields[name].metadata, name in Inferred.model_fields))
    for name in names:
        if Shown.ALONE not in fields[name].metadata:
            yield name, fields[name]


def _size(name: str, field: FieldInfo) -> list[str]:
    if Shown.CUT not in field.metadata:
        return []
    return [f"    {name}_bytes: int | None = None", f"    {name}_truncated: bool = False"]


def _default(type_: str) -> str:
    """Return the value that JSON leaves out. Ids always have another one."""
    if type_.endswith("None"):
        return "None"
    return {"bool": "False", "Id": '""'}.get(type_, "[]")


def _type(annotation: Any) -> str:
    """Return the type of a row's field as source."""
    if annotation is NoneType:
        return "None"
    if get_origin(annotation) is Annotated:
        return _type(get_args(annotation)[0])
    if get_origin(annotation) is list:
        return f"list[{_type(get_args(annotation)[0])}]"
    if parts := get_args(annotation):
        return " | ".join(_type(part) for part in parts)
    name: str = annotation.__name__
    return AS_TEXT.get(name, name)


if __name__ == "__main__":
    FILE.write_text(updated(), encoding="utf-8")
