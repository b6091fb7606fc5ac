"""Configuration files that would take long, say much, or never end."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest

from srunbook import generate
from srunbook.generate import JobError, Layer

MINIMUM = {"nodes": 2, "cpus_per_node": 8, "script": "train.py"}


def refusal(text: str) -> str:
    """Return what a configuration file is told, which has no warnings beside it."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(JobError) as caught:
            generate.specify(Layer("profile", MINIMUM), generate.parse_config(text, "a.yaml"))
    return str(caught.value)


CHAIN = "".join(f"a{number}: &a{number} [*a{number - 1}]\n" for number in range(1, 2000))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &x 1\nb: &x 2\nc: *x\n", "a.yaml:2: the anchor 'x' is there already"),
        ("a: &x 1\n" * 60_000, "a.yaml:2: the anchor 'x' is there already"),
        ("".join(f"key{number}: 1\n" for number in range(80_000)), "a.yaml:5000: more than 10000 keys and values"),
        ("arguments:\n" + "  - x\n" * 150_000, "a.yaml:9999: more than 10000 keys and values"),
        ("a: " + "[" * 60_000, "a.yaml:1: lists and mappings lie more than 16 deep in each other"),
        ("a: " + "{a: " * 10_000, "a.yaml:1: lists and mappings lie more than 16 deep in each other"),
        ("- " * 30_000, "a.yaml:1: lists and mappings lie more than 16 deep in each other"),
        ("".join(" " * number + "a:\n" for number in range(500)), "a.yaml:17: lists and mappings lie more than 16"),
        ("a: !" + "t" * 900_000 + " x", "a.yaml:1: a line of 900006 characters"),
        ("a: !" + "t" * 60_000 + " x", "a.yaml:1: could not determine a constructor for the tag '!ttt"),
        ("a: *" + "b" * 60_000, "a.yaml:1: found undefined alias 'bbb"),
        (("? " + "k" * 60_000 + "\n: 1\n") * 2, "a.yaml:3: while constructing a mapping found duplicate key"),
        ("nodes: 2\nnodes: 3\n" * 2_000, "a.yaml:2: while constructing a mapping found duplicate key"),
        ("nodes: " + "9" * 1_000_000, "a.yaml:1: a line of 1000007 characters"),
        ("nodes: " + "9" * 60_000, "a.yaml:1: cannot be read as YAML: a number of 60000 characters"),
        ("nodes: 1\n# \x00\n", "a.yaml:2: not YAML"),
        ("nodes: !!python/object/apply:os.system ['id']", "could not determine a constructor for the tag"),
        ("%YAML 1.1\n---\ntime_limit: 12:00:00\nnodes: 1e3\n", "a.yaml:1: YAML 1.1 is asked for; only 1.2 is read"),
        ("%YAML 1.3\n---\nnodes: 2\n", "a.yaml:1: YAML 1.3 is asked for"),
        ("%YAML 1." + "9" * 5000 + "\n---\nnodes: 2\n", "a.yaml:1: YAML 1.99999999 is asked for"),
        ("a0: &a0 [x]\n" + CHAIN + "arguments: [*a1999]\n", "a.yaml:1: unknown key 'a0'"),
        ("arguments: &a [*a]", "arguments[0] is [[[...]]]"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_told_in_few_lines(text, said):
    """What is too much is refused with its line, in a short text, and without warnings."""
    message = refusal(text)

    assert said in message
    assert len(message) < 12_000
    assert max(map(len, message.splitlines())) < 1_000


def test_alias_is_taken():
    """A value may be named once and used again."""
    text = "env_vars: &threads {OMP_NUM_THREADS: &four '4', MKL_NUM_THREADS: *four}\n"

    assert generate.parse_config(text, "a.yaml").values == {
        "env_vars": {"OMP_NUM_THREADS": "4", "MKL_NUM_THREADS": "4"}
    }


def test_largest_configuration():
    """A file with as many arguments, variables and modules as are allowed is not too large."""
    values = "arguments:\n" + "- x\n" * 256 + "modules_to_load:\n" + "- x\n" * 64
    values += "env_vars:\n" + "".join(f"  V{number}: x\n" for number in range(256))
    one = generate.specify(Layer("profile", MINIMUM), generate.parse_config(values, "a.yaml")).specification

    assert (len(one.arguments), len(one.modules_to_load), len(one.env_vars)) == (256, 64, 256)


def test_pipe(tmp_path):
    """A pipe into which nobody writes is refused at once."""
    path = tmp_path / "a.yaml"
    os.mkfifo(path)

    with pytest.raises(JobError, match=r"a\.yaml: not a regular file"):
        generate.read_config(path)


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null"])
def test_device(path):
    """A device is no configuration, be it endless or empty."""
    with pytest.raises(JobError, match=f"{path}: not a regular file"):
        generate.read_config(Path(path))
