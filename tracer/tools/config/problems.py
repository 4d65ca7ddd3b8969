"""What is wrong with a file of definitions: each problem with its place, all told at once."""

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
    """Gathers what is wrong with one file, so that it can be put right in one go."""

    def __init__(self, file: str) -> None:
        """Begin with none.

        Args:
            file: The file's name, for the error.
        """
        self._file = file
        self._lines: list[str] = []

    def add(self, place: str, what: str) -> None:
        """Keep a problem.

        Args:
            place: Where in the file: `nurse.max_rounds`.
            what: What is wrong there, and what to write instead. No value of the file: it may be
                a secret.
        """
        self._lines.append(f"{place}: {what}")

    def read(self, place: str, model: type[Model], content: Mapping[str, Any]) -> Model | None:
        """Return a part of the file as a model, and keep what is wrong with it.

        What is wrong is left out of the model, so that what it says otherwise can be looked at too;
        None where there is no model without it.
        """
        try:
            return model.model_validate(content)
        except ValidationError as error:
            wrong = error.errors(include_input=False, include_context=False, include_url=False)
        for each in wrong:
            path = [str(part) for part in each["loc"]]
            where = ".".join([place, *path])
            if each["type"] == "extra_forbidden":
                self.add(where, unknown_name("key", path[-1], _known_keys(model, path[:-1])))
            elif each["type"] == "missing":
                self.add(where, "is missing: give it.")
            else:
                self.add(where, f"{each['msg'].removeprefix('Value error, ')}.")
        keys = {each["loc"][0] for each in wrong if each["loc"]}
        try:
            return model.model_validate(
                {key: value for key, value in content.items() if key not in keys}
            )
        except ValidationError:
            return None

    def named(self, place: str, name: str, given: Mapping[str, Anything]) -> Anything | None:
        """Return what a name in the file stands for; None, and a problem kept, for nothing.

        Args:
            place: Where the name stands.
            name: A name in `given`, or `module:name`.
            given: What the program handed to the reader.
        """
        if name in given:
            return given[name]
        module, colon, attribute = name.partition(":")
        if not colon:
            self.add(place, unknown_name("name", name, given, "Or write module:name."))
            return None
        try:
            found: Anything = operator.attrgetter(attribute)(importlib.import_module(module))
        except (ImportError, AttributeError, ValueError) as error:
            self.add(place, f"{name!r} can't be imported: {error}.")
            return None
        return found

    def tell(self) -> None:
        """Return if there are none.

        Raises:
            RegistrationError: There are; the message has a line for each.
        """
        if self._lines:
            raise RegistrationError(
                "\n- ".join([f"{self._file} can't be used as it is:", *self._lines])
            )


def unknown_name(kind: str, name: str, known: Iterable[str], advice: str = "") -> str:
    """Return the sentence for a name that there is not, with the nearest that there is."""
    names = {each.casefold(): each for each in sorted(known)}
    near = get_close_matches(name.casefold(), names, n=1)
    there_are = f"There are: {', '.join(names.values()) or 'none'}."
    hint = f"Did you mean {names[near[0]]!r}?" if near else there_are
    return f"there is no {kind} {name!r}. {hint} {advice}".rstrip()


def _known_keys(model: type[BaseModel], path: Iterable[str]) -> set[str]:
    """Return what may stand at a place within a model."""
    models = [model]
    for part in path:
        fields = [each.model_fields[part] for each in models if part in each.model_fields]
        # Else it is the tag of a union or an index: the same models go on.
        if fields:
            models = [found for each in fields for found in _models_in(each.annotation)]
    return {name for each in models for name in each.model_fields}


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isclass(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models_in(each)
