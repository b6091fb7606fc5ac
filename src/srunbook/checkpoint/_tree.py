"""Turn nested states, such as that of an optimizer, into named tensors and JSON, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from srunbook.checkpoint._arrays import dtype_of


def flatten(state: Any) -> tuple[dict[str, Any], Any]:
    """Take the tensors out of a nested state.

    Args:
        state: Mappings, lists and tuples of tensors and of what JSON can hold, such as
            `{"model": model.state_dict(), "optimizer": optimizer.state_dict()}`. Keys are text or whole numbers.

    Returns:
        The tensors by name, such as `optimizer.state.0.exp_avg`, and the rest in a form that JSON can hold, for the
        metadata.

    Raises:
        TypeError: A value or a key has another type.
        ValueError: Two tensors have the same name.

    >>> import numpy as np
    >>> tensors, rest = flatten({"state": {0: {"step": np.array(3)}}, "betas": (0.9, 0.99)})
    >>> list(tensors)
    ['state.0.step']
    >>> unflatten(tensors, rest)
    {'state': {0: {'step': array(3)}}, 'betas': (0.9, 0.99)}
    """
    tensors: dict[str, Any] = {}
    return tensors, _take(state, "", tensors)


def _take(value: Any, name: str, tensors: dict[str, Any]) -> Any:
    def inner(key: Any, item: Any) -> Any:
        return _take(item, f"{name}.{key}" if name else str(key), tensors)

    if isinstance(value, Mapping):
        for key in value:
            if isinstance(key, bool) or not isinstance(key, (str, int)):
                raise TypeError(f"{name or 'the state'} has the key {key!r}; keys are text or whole numbers")
        return {"mapping": [[key, inner(key, item)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [inner(number, item) for number, item in enumerate(value)]}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    try:
        dtype_of(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name or 'the state'}: {error}") from None
    if name in tensors:
        raise ValueError(f"two tensors of the state have the name {name!r}")
    tensors[name] = value
    return {"tensor": name}


def unflatten(tensors: Mapping[str, Any], rest: Any) -> Any:
    """Rebuild a state from its tensors and the rest.

    Args:
        tensors: The tensors that `flatten` returned, or that were restored.
        rest: The rest that `flatten` returned, or that was restored with the metadata.

    Returns:
        The state, with plain dictionaries, lists and tuples.

    Raises:
        KeyError: A tensor is missing.
    """
    if not isinstance(rest, dict):
        return rest
    ((kind, content),) = rest.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "mapping":
        return {key: unflatten(tensors, item) for key, item in content}
    items = [unflatten(tensors, item) for item in content]
    return tuple(items) if kind == "tuple" else items
