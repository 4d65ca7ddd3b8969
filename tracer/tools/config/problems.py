"""Parse definition files with pydantic. One error reports the problems, each with its location."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import PlainValidator, TypeAdapter, ValidationError, ValidationInfo

from tracer.errors import RegistrationError

Content = TypeVar("Content")


class FileProblems(RegistrationError):
    """A definition file has errors."""

    def __init__(self, file: str, problems: Mapping[str, tuple[str, ...]]) -> None:
        """Describe the errors.

        Args:
            file: The file's name.
            problems: The location of each error, by its description with the location.
        """
        self.file = file
        self.problems = problems
        super().__init__("\n- ".join([f"{file} has errors. Correct them:", *problems]))

    def by_entry(self, table: str) -> dict[str, str]:
        """Return the errors of each entry of a table.

        Raises:
            FileProblems: Other parts of the file have errors.
        """
        found: dict[str, str] = {}
        others = {}
        for text, place in self.problems.items():
            if place[:1] == (table,) and len(place) > 1:
                found[place[1]] = f"{found[place[1]]} {text}" if place[1] in found else text
            else:
                others[text] = place
        if others:
            raise FileProblems(self.file, others) from None
        return found


def parsed(file: str, adapter: TypeAdapter[Content], content: object, **context: Any) -> Content:
    """Return the content of a definition file as the adapter's type.

    Args:
        file: The file's name, for the error.
        adapter: The type.
        content: The content.
        context: The context of the validators: `functions` for fields that are `Named`.

    Raises:
        FileProblems: The content has errors. The message has a line for each, which does not
            quote values of the file, because they may be secrets.
    """
    try:
        return adapter.validate_python(content, context=context)
    except ValidationError as error:
        details = error.errors(include_input=False, include_context=False, include_url=False)
    problems = {}
    for each in details:
        place = tuple(map(str, each["loc"]))
        text = f"{'.'.join(place) or 'file'}: {each['msg'].removeprefix('Value error, ')}."
        problems[text] = place
    raise FileProblems(file, problems)


def _resolved(name: object, info: ValidationInfo) -> object:
    functions = info.context["functions"] if info.context else {}
    if not isinstance(name, str):
        raise ValueError("must be text")
    if name in functions:
        return functions[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        known = ", ".join(sorted(functions)) or "none"
        raise ValueError(
            f"unknown name {name!r}. Choose from: {known}. Or write module:name, or pass the "
            "object to the function that reads the file"
        )
    try:
        return operator.attrgetter(attribute)(importlib.import_module(module))
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"{name!r} cannot be imported: {error}") from None


Named = Annotated[Any, PlainValidator(_resolved)]
"""An object that the file names: a key of the context's `functions`, or `module:name`."""
