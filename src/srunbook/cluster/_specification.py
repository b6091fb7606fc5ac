"""What a cluster is to be, as it was asked for: its fields, checked one by one and against each other."""

from __future__ import annotations

from typing import Any

from pydantic import ModelWrapValidatorHandler, ValidationError, ValidationInfo, model_validator

from srunbook.cluster._consistency import contradictions
from srunbook.cluster._derived import Derived
from srunbook.cluster._errors import SpecificationError
from srunbook.cluster._mistakes import raise_problems, sentences


class Specification(Derived):
    """A cluster as it was asked for: options of the command, a file, or both.

    Args:
        values: The fields, by name; `read_specification` reads them from a file.

    Raises:
        SpecificationError: A key is unknown, a value is not allowed, or two contradict each other.

    >>> Specification(nodes=2).node_names
    ('node1', 'node2')
    """

    @model_validator(mode="wrap")
    @classmethod
    def _in_sentences(
        cls, values: Any, handler: ModelWrapValidatorHandler[Specification], info: ValidationInfo
    ) -> Specification:
        """Turn what pydantic says into sentences that name the place of a value."""
        try:
            made = handler(values)
        except ValidationError as error:
            raise SpecificationError("\n".join(sentences(cls, error, info.context))) from None
        raise_problems(contradictions(made, made.model_fields_set), info.context)
        return made
