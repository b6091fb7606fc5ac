"""A job script as data: how directives are read, the option tables, the shell's words, edits that keep the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.drawn_scripts import drawn_scripts

from srunbook import script
from srunbook.script import ScriptError

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = sorted((ROOT / "slurm").rglob("*.sbatch"))


def parsed(*lines: str, generation: str | None = None) -> list[tuple[str, str | None]]:
    """Return the options of directives."""
    data = "\n".join(["#!/bin/bash", *lines, "srun x", ""]).encode()
    return [(option.name, option.value) for option in script.parse(data, generation).options]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("#SBATCH --partition=gpu", [("partition", "gpu")]),
        ("#SBATCH --partition gpu", [("partition", "gpu")]),
        ("#SBATCH -p gpu", [("partition", "gpu")]),
        ("#SBATCH -pgpu", [("partition", "gpu")]),
        ("#SBATCH --part=gpu", [("partition", "gpu")]),
        ("#SBATCH -Hp gpu", [("hold", None), ("partition", "gpu")]),
        ("#SBATCH --job-name='a b' --comment=\"it's\"", [("job-name", "a b"), ("comment", "it's")]),
        ("#SBATCH --comment a\\#b", [("comment", "a#b")]),
        ("#SBATCH --qos=a#b --nodes=3", [("qos", "a")]),
        ("#SBATCH --qos='' -N1", [("qos", ""), ("nodes", "1")]),
        ("#SBATCH--nodes=4", [("nodes", "4")]),
        ("##SBATCH --nodes=4", []),
        ("#SBATCH --unheard-of=1", [("unheard-of", "1")]),
    ],
)
def test_forms_of_directives(line, expected):
    """Each form that sbatch accepts is read, with its quotes and comments."""
    assert parsed(line) == expected


def test_an_argument_on_the_next_line_belongs_to_its_option():
    """All directives are one list of words, so an empty word, which ends a line, lets the next line give the value."""
    assert parsed("#SBATCH --comment '' -N9", "#SBATCH -n4") == [("comment", "-n4")]


def test_directives_end_at_the_first_command():
    """Comments and empty lines do not end them; a command does, and a here-document has none."""
    lines = ("# x", "", "  # y", "#SBATCH -N2", "cat <<END", "#SBATCH -N3", "END", "#SBATCH -N4")

    assert parsed(*lines) == [("nodes", "2")]


def test_generations_differ_in_a_backslash_before_a_space():
    """Slurm 22.05 ends the word there, later ones do not; nobody has to know which, so it is refused by default."""
    line = "#SBATCH -J a\\ -N2"

    assert parsed(line, generation="22.05") == [("job-name", "a"), ("nodes", "2")]
    assert parsed(line, generation="24.11") == [("job-name", "a -N2")]
    with pytest.raises(ScriptError, match=r"line 2: .*Use quotes"):
        parsed(line)


@pytest.mark.parametrize(
    ("data", "line", "said"),
    [
        (b"#SBATCH -N2\n", 1, "#!"),
        (b"#!/bin/sh\n#\n#SBATCH --qos='a\n", 3, "not closed"),
        (b"#!/bin/sh\n#SBATCH hetjob\n", 2, "hetjob"),
        (b"#!/bin/sh\n#SBATCH foo\n", 2, "'foo' is not an option"),
        ("#!/bin/sh\n#SBATCH \N{EN DASH}gres=gpu:1\n".encode(), 2, "not an option"),
        (b"#!/bin/sh\n#SBATCH --time\nx\n", 2, "--time has no value"),
        (b"#!/bin/sh\n\necho \0\n", 3, "NUL"),
    ],
)
def test_what_sbatch_refuses_is_refused(data, line, said):
    """The message has the line, what was found and what to do."""
    with pytest.raises(ScriptError) as caught:
        script.parse(data)

    assert caught.value.line == line
    assert said in caught.value.problem


@given(st.integers(0, 10**6), st.sampled_from(["\n", "\r\n"]), st.binary(max_size=20), st.text("ab1&|,", min_size=1))
def test_an_edit_changes_only_its_line(seed, newline, tail, value):
    """Another value for an option changes the line of the option; end of lines and bytes that are not UTF-8 stay."""
    (drawn,) = drawn_scripts(1, seed, odd=0)
    data = drawn.replace(b"\n", newline.encode()) + tail.replace(b"\0", b"\xff")
    try:
        job = script.parse(data)
        edits = [(option, script.set_value(option, value)) for option in job.options if option.value is not None]
    except ScriptError:
        return
    for option, edit in edits:
        made = script.apply(data, [edit])
        before, after = data.split(b"\n"), made.split(b"\n")
        assert len(before) == len(after)
        assert [n for n, (a, b) in enumerate(zip(before, after, strict=True), 1) if a != b] in ([], [option.line])
        again = script.parse(made)
        assert [(o.name, o.value) for o in again.options] == [
            (o.name, value if o is option else o.value) for o in job.options
        ]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=8))
def test_no_value_breaks_out_of_a_directive(value):
    """A value is written so that sbatch reads it back, or refused."""
    try:
        text = script.directive("partition", value)
    except ValueError:
        return
    assert parsed(f"#SBATCH {text} --nodes=2") == [("partition", value), ("nodes", "2")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("#SBATCH -p gpu  # queue", "#SBATCH -p x    # queue"),
        ("#SBATCH --partition=gpu", "#SBATCH --partition=x"),
        ('#SBATCH --partition="gpu" -N2', "#SBATCH --partition=x -N2"),
        ("#SBATCH -Hpgpu", "#SBATCH -Hpx"),
    ],
)
def test_a_value_keeps_the_form(line, expected):
    """A new value keeps the form of the option, and a comment keeps its column."""
    job = script.parse(f"#!/bin/sh\n{line}\n".encode())
    option = job.last("partition")

    assert option is not None
    assert script.apply(job.data, [script.set_value(option, "x")]).decode().splitlines()[1] == expected


def test_options_in_one_quoted_word_are_refused():
    """Nobody can change one of several options in a word with quotes."""
    job = script.parse(b"#!/bin/sh\n#SBATCH '-Hpgpu'\n")

    with pytest.raises(ScriptError, match="several options in one word"):
        script.set_value(job.options[1], "x")


def test_an_option_is_removed_with_its_line_or_without():
    """A line without another option goes as a whole."""
    job = script.parse(b"#!/bin/sh\n#SBATCH -A x  # who\n#SBATCH -N2 -p gpu # two\n#SBATCH --qos q --mem 0\n")
    edits = [script.remove(job, option) for name in ("account", "partition", "qos") if (option := job.last(name))]

    assert script.apply(job.data, edits) == b"#!/bin/sh\n#SBATCH -N2 # two\n#SBATCH --mem 0\n"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"#!/bin/sh\nx\n", b"#!/bin/sh\n#SBATCH --qos=q\nx\n"),
        (b"#!/bin/sh", b"#!/bin/sh\n#SBATCH --qos=q"),
        (b"#!/bin/sh\r\n#SBATCH -N2\r\nx", b"#!/bin/sh\r\n#SBATCH -N2\r\n#SBATCH --qos=q\r\nx"),
    ],
)
def test_a_directive_is_added_after_the_last(data, expected):
    """It ends its line as the others do."""
    job = script.parse(data)

    assert script.apply(data, [script.add_directive(job, "qos", "q")]) == expected


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_the_shell_of_published_scripts_is_understood(path):
    """Each job script of the repository is read without a doubt; a text that bash would refuse is not."""
    assert script.read_shell(path.read_bytes()).problem is None
    assert script.read_shell(path.read_bytes() + b"\nif true; then\n").problem is not None


def test_commands_know_what_they_depend_on():
    """Only what the script's own shell runs once is plain; here-documents and comments have no commands."""
    shell = script.read_shell(
        b"""\
module purge && module load a  # module load z
if true; then module load b; fi
[ -f x ] && module load c
f() { module load d; }
module load e | cat
(module load f)
cat <<END
module load g
END
X=1 module load h
bytes \xff\xfe; module load i
"""
    )
    loads = {command.words[-1].literal: command.plain for command in shell.commands if command.name == "module"}

    assert loads == {"purge": True, "a": True, "b": False, "c": False, "d": False, "e": False, "f": False} | {
        "h": True,
        "i": True,
    }
