"""The problems of a definition file, each with its location. They are reported all at once."""

from __future__ import annotations

import importlib
import operator
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from inspect import isclass
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from tracer.errors import RegistrationError

Anything = TypeVar("Anything")
Model = TypeVar("Model", bound=BaseModel)


class DefinitionProblems:
    """Collects the problems of one file, so that one error can report all of them."""

    def __init__(self, file: str) -> None:
        """Create an empty list of problems.

        Args:
            file: The file's name, for the error.
        """
        self._file = file
        self._lines: list[str] = []

    def add(self, location: str, problem: str) -> None:
        """Add a problem.

        Args:
            location: The location of the problem in the file: `nurse.max_rounds`.
            problem: The error, and how to correct it. The text must not quote values of the file,
                which may be secrets.
        """
        self._lines.append(f"{location}: {problem}")

    def read(self, location: str, model: type[Model], content: Mapping[str, Any]) -> Model | None:
        """Parse a part of the file as a pydantic model, and add its problems.

        Invalid keys are omitted from the model, so that the caller can check the others. If the
        model is invalid without the omitted keys, the result is None.
        """
        try:
            return model.model_validate(content)
        except ValidationError as error:
            details = error.errors(include_input=False, include_context=False, include_url=False)
        for each in details:
            path = [str(part) for part in each["loc"]]
            where = ".".join([location, *path])
            if each["type"] == "extra_forbidden":
                self.add(where, unknown_name("key", path[-1], _known_keys(model, path[:-1])))
            elif each["type"] == "missing":
                self.add(where, "is missing.")
            else:
                self.add(where, f"{each['msg'].removeprefix('Value error, ')}.")
        keys = {each["loc"][0] for each in details if each["loc"]}
        try:
            return model.model_validate(
                {key: value for key, value in content.items() if key not in keys}
            )
        except ValidationError:
            return None

    def resolve(
        self, location: str, name: str, functions: Mapping[str, Anything]
    ) -> Anything | None:
        """Return the object that a name in the file refers to.

        If there is no such object, add a problem and return None.

        Args:
            location: The name's location in the file.
            name: A name in `functions`, or `module:name`.
            functions: The objects that the program passed to the reader.
        """
        if name in functions:
            return functions[name]
        module, colon, attribute = name.partition(":")
        if not colon:
            self.add(location, unknown_name("name", name, functions, "Or write module:name."))
            return None
        try:
            resolved: Anything = operator.attrgetter(attribute)(importlib.import_module(module))
        except (ImportError, AttributeError, ValueError) as error:
            self.add(location, f"{name!r} cannot be imported: {error}.")
            return None
        return resolved

    def raise_if_any(self) -> None:
        """Raise an error if there are problems.

        Raises:
            RegistrationError: There are problems; the message has a line for each.
        """
        if self._lines:
            raise RegistrationError(
                "\n- ".join([f"{self._file} has errors. Correct them:", *self._lines])
            )


def unknown_name(kind: str, name: str, known: Iterable[str], advice: str = "") -> str:
    """Return the message for an unknown name. It suggests the most similar known one."""
    names = {each.casefold(): each for each in sorted(known)}
    similar = get_close_matches(name.casefold(), names, n=1)
    choices = f"Choose from: {', '.join(names.values()) or 'none'}."
    hint = f"Did you mean {names[similar[0]]!r}?" if similar else choices
    return f"unknown {kind} {name!r}. {hint} {advice}".rstrip()


def _known_keys(model: type[BaseModel], path: Iterable[str]) -> set[str]:
    """Return the keys that are valid at a path within a model."""
    models = [model]
    for part in path:
        fields = [each.model_fields[part] for each in models if part in each.model_fields]
        # Otherwise the part is an index or the tag of a union, which stays in the same models.
        if fields:
            models = [nested for each in fields for nested in _models_in(each.annotation)]
    return {name for each in models for name in each.model_fields}


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models_in(each)
