"""Rows of sacct are read as Slurm writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srunbook.slurm import (
    SACCT_FIELDS,
    SlurmParseError,
    parse_sacct,
    parse_sacct_columns,
    sacct_command,
    split_attempts,
)

HEADER = "|".join(SACCT_FIELDS)
PRINTED = f"""\
{HEADER}
9|wrap|REQUEUED|0:0|1||00:00:01|node1
9.batch|batch|CANCELLED|0:15|1|1|00:00:02|node1
9.0|true|COMPLETED|0:0|1|1|00:00:01|node1
9|wrap|COMPLETED|0:0|2||00:00:00|node[1-2]
9.batch|batch|COMPLETED|0:0|1|1|00:00:00|node1
9.0|true|COMPLETED|0:0|2|2|1-00:00:00|node[1-2]
"""
"""What Slurm 22.05.8 printed for a job that was requeued (numbers of nodes changed)."""


def test_rows_are_read():
    """A step's row has the job's number, its own, its state, status, signal, nodes and tasks."""
    row = parse_sacct(PRINTED)[-1]

    assert (row.job_id, row.step, row.identity, row.name) == ("9", "0", "9.0", "true")
    assert (row.state, row.exit_code, row.signal, row.ended) == ("COMPLETED", 0, 0, True)
    assert (row.nodes, row.tasks, row.elapsed, row.hosts) == (2, 2, "1-00:00:00", ["node1", "node2"])


def test_a_waiting_job_has_no_nodes():
    """The words `None assigned` name no node."""
    (row,) = parse_sacct(f"{HEADER}\n12|wrap|PENDING|0:0|1||00:00:00|None assigned\n")

    assert row.hosts == []
    assert not row.ended


def test_a_canceller_is_no_part_of_the_state():
    """`CANCELLED by 20001` is the state CANCELLED."""
    (row,) = parse_sacct("JobID|State|ExitCode\n3|CANCELLED by 20001|0:0\n")

    assert row.state == "CANCELLED"


def test_a_dead_node_gives_no_exit_code():
    """A step whose node died has an empty exit code, and its state tells what happened."""
    (row,) = parse_sacct(f"{HEADER}\n7.0|sleep|CANCELLED||1|1|00:00:34|node4\n")

    assert (row.state, row.exit_code, row.signal) == ("CANCELLED", 0, 0)


def test_attempts_are_told_apart():
    """Each row of the job itself begins an attempt."""
    first, second = split_attempts(parse_sacct(PRINTED))

    assert [row.state for row in first] == ["REQUEUED", "CANCELLED", "COMPLETED"]
    assert {row.state for row in second} == {"COMPLETED"}
    assert split_attempts([]) == []


def test_an_unknown_job_has_no_rows():
    """A header alone, or nothing, is no row."""
    assert parse_sacct(HEADER + "\n") == parse_sacct("") == []


@given(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=20))
def test_a_name_may_hold_anything(name):
    """A job's name changes no other column, whatever bars and states it holds."""
    (row,) = parse_sacct(f"{HEADER}\n17|{name}|FAILED|3:0|2||00:00:01|node[1-2]\n")

    assert (row.name, row.state, row.exit_code, row.nodes) == (name, "FAILED", 3, 2)


def test_columns_keep_a_bar_in_the_name():
    """Columns of any choice and order are read, also where the name holds bars, is last, or ends in one."""
    text = "JobID|JobName|Partition|State\n17|a|b||batch|FAILED\n17.0|x|batch|FAILED\n"
    first, second = parse_sacct_columns(text)

    assert first == {"JobID": "17", "JobName": "a|b|", "Partition": "batch", "State": "FAILED"}
    assert second["JobName"] == "x"
    assert parse_sacct_columns("JobID|JobName\n17|a|b\n") == [{"JobID": "17", "JobName": "a|b"}]
    assert parse_sacct_columns("") == parse_sacct_columns("JobID|JobName\n") == []


def test_a_line_break_in_the_name_is_part_of_it():
    """A row that a line break in the name has torn is put together; a torn row before another one is refused."""
    text = "JobID|JobName|State\n4|a\n\nb|COMPLETED\n4.0|true|COMPLETED\n"

    assert [row["JobName"] for row in parse_sacct_columns(text)] == ["a\n\nb", "true"]
    with pytest.raises(SlurmParseError, match="2 columns under a header of 3"):
        parse_sacct_columns("JobID|JobName|State\n4|a\n4.0|true|COMPLETED\n")


def test_a_bar_too_much_elsewhere_is_refused():
    """Without a name among the columns nothing can hold a bar, and too few columns are too few."""
    with pytest.raises(SlurmParseError, match="3 columns under a header of 2"):
        parse_sacct_columns("JobID|State\n17|FAILED|x\n")
    with pytest.raises(SlurmParseError, match="1 columns under a header of 2"):
        parse_sacct_columns("JobID|JobName\n17\n")


def test_the_command_asks_for_the_columns():
    """The command asks for one job, with a header, and for earlier attempts on request."""
    assert sacct_command("17")[-1] == "--format=" + ",".join(SACCT_FIELDS)
    assert "--noheader" not in sacct_command("17")
    assert [word for word in sacct_command("17", duplicates=True) if word not in sacct_command("17")] == [
        "--duplicates"
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("JobID|State\n17|FAILED\n", "no column ExitCode"),
        ("       JobID      State\n", "no column JobID"),
        ("JobID|State|ExitCode\n17|FAILED\n", "2 columns under a header of 3"),
        ("JobID|State|ExitCode\n17|FAILED|0:0|x\n", "4 columns under a header of 3"),
        ("JobID|State|ExitCode\nx|FAILED|0:0\n", "'x' is no job id"),
        ("JobID|State|ExitCode\n17|FAILED|zero\n", "'zero' is no exit code"),
        ("JobID|State|ExitCode\n17| |0:0\n", "no state"),
    ],
)
def test_another_form_is_refused(text, complaint):
    """What does not read like sacct's output is refused with the reason."""
    with pytest.raises(SlurmParseError, match=complaint):
        parse_sacct(text)
