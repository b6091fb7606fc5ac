"""Nested states become named tensors and JSON, and back."""

from __future__ import annotations

import json

import numpy as np
import pytest

from srunbook.checkpoint import Checkpoints, flatten, unflatten


def test_a_torch_training_goes_on_as_if_never_stopped(tmp_path):
    """Model, optimizer and random state that were saved and restored give the same parameters, bit for bit."""
    torch = pytest.importorskip("torch")

    def start():
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)

    def train(model, optimizer, steps):
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(5, 4)).square().mean().backward()
            optimizer.step()
        return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])

    undisturbed = train(*start(), 6)
    model, optimizer = start()
    train(model, optimizer, 3)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}
    tensors, rest = flatten(state)
    Checkpoints(tmp_path).save(3, tensors, {"state": rest})

    model, optimizer = start()
    restored = Checkpoints(tmp_path).restore()
    state = unflatten(restored.tensors, restored.metadata["state"])
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])

    assert "optimizer.state.0.exp_avg" in tensors
    assert torch.equal(train(model, optimizer, 3), undisturbed)


def test_everything_comes_back():
    """Tuples, empty containers and numbers as keys survive JSON."""
    array = np.arange(3)
    state = {"a": [(1, None), {}, []], 7: {"x": array}, "7": True, "text": "mapping"}
    tensors, rest = flatten(state)

    assert tensors == {"7.x": array}
    assert unflatten(tensors, json.loads(json.dumps(rest))) == state


@pytest.mark.parametrize(
    ("state", "error", "message"),
    [
        ({"a": {"b": {1}}}, TypeError, r"a\.b: expected a torch tensor.* found set"),
        ({"a": {1.5: 2}}, TypeError, r"a has the key 1\.5"),
        ({"a": {"b": np.zeros(1)}, "a.b": np.ones(1)}, ValueError, r"two tensors .* 'a\.b'"),
    ],
)
def test_what_cannot_be_flattened(state, error, message):
    """What is no tensor and no JSON is refused with its place."""
    with pytest.raises(error, match=message):
        flatten(state)
