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

HEADER = "JobID|JobName|State|ExitCode|NNodes|NTasks|Elapsed|NodeList"
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


@pytest.mark.parametrize("cut", [1, 2, 4, 40, 90])
def test_an_output_that_breaks_off_is_refused(cut):
    """What was cut anywhere, within the last column too, may lack rows: nobody takes it for the whole."""
    with pytest.raises(SlurmParseError, match="breaks off without a line break"):
        parse_sacct(PRINTED[:-cut])


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
    _, row = parse_sacct(f"{HEADER}\n7|wrap|NODE_FAIL|0:0|1||00:00:34|node4\n7.0|sleep|CANCELLED||1|1|00:00:34|node4\n")

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


MARK = "|3f2a|"


def printed(rows: list[list[str]], delimiter: str) -> str:
    """Return what sacct prints for rows, the first of which names the columns."""
    return "".join(delimiter.join(row) + "\n" for row in rows)


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])).filter(lambda text: "3f2a" not in text), max_size=4))
def test_text_of_a_user_forges_nothing(names):
    """Behind a delimiter that its user cannot guess, a name is read as it is, and changes nothing else."""
    rows = [["17", "FAILED", name, "node1"] for name in names]
    read = parse_sacct_columns(printed([["JobID", "State", "JobName", "NodeList"], *rows], MARK), MARK)

    assert [list(row.values()) for row in read] == rows


@pytest.mark.parametrize("name", ["x|COMPLETED|0:0\n17|y|COMPLETED|0:0\n17.0|z", "a|b", "a\n\nb", "\n17|COMPLETED"])
def test_names_that_look_like_rows(name):
    """A name that holds whole rows, of the usual delimiter, is a name."""
    rows = [["JobID", "JobName", "State", "ExitCode"], ["17", name, "FAILED", "1:0"], ["17.0", name, "FAILED", "1:0"]]

    assert [row["State"] for row in parse_sacct_columns(printed(rows, MARK), MARK)] == ["FAILED", "FAILED"]


def test_the_default_columns_hold_no_text_of_a_user():
    """What verify asks for can hold neither a bar nor a line break, whatever a user calls a job or a folder."""
    free = {"JobName", "WorkDir", "Comment", "AdminComment", "SystemComment", "SubmitLine", "StdOut", "StdErr", "StdIn"}
    free |= {"Account", "Reservation", "Reason", "Constraints", "Container", "Extra", "Licenses", "WCKey", "McsLabel"}

    assert not free & {*SACCT_FIELDS}


def test_elements_and_components():
    """Rows of elements, of those that wait, and of components have their number, and the one that Slurm gave them."""
    header = "JobID|JobIDRaw|State|ExitCode"
    ids = ["56_3|59", "56_3.0|59.0", "56_[4-9%2]|56", "56_[1,3,...]|56", "60+1|61", "60+1.0|61.0", "7|7", "7.0+1|7.0+1"]
    rows = parse_sacct("\n".join([header, *(f"{text}|COMPLETED|0:0" for text in ids), ""]))

    assert [row.identity for row in rows] == [text.split("|")[0] for text in ids]
    assert [row.raw_id for row in rows] == ["59", "59", "56", "56", "61", "61", "7", "7"]


def test_a_bar_too_much_elsewhere_is_refused():
    """Without a name among the columns nothing can hold a bar, and too few columns are too few."""
    with pytest.raises(SlurmParseError, match="3 columns under a header of 2"):
        parse_sacct_columns("JobID|State\n17|FAILED|x\n")
    with pytest.raises(SlurmParseError, match="1 columns under a header of 2"):
        parse_sacct_columns("JobID|JobName\n17\n")
    with pytest.raises(SlurmParseError, match="4 columns under a header of 3"):
        parse_sacct_columns("JobID|JobName|State\n4|a\n4.0|true|COMPLETED\n")
    assert parse_sacct_columns("") == parse_sacct_columns("JobID|JobName\n") == []


def test_the_command_asks_for_the_columns():
    """The command asks for one job, with a header, and for earlier attempts on request."""
    assert sacct_command("17")[-1] == "--format=" + ",".join(SACCT_FIELDS)
    assert "--noheader" not in sacct_command("17")
    assert "--delimiter=@" in sacct_command("17", delimiter="@")
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
        ("JobID|State|ExitCode\n17.0|FAILED|1:0\n17|FAILED|1:0\n", "a step without a row of its job"),
        ("JobID|State|ExitCode\n\u0661\u0667|FAILED|1:0\n", "is no job id"),
    ],
)
def test_another_form_is_refused(text, complaint):
    """What does not read like sacct's output is refused with the reason."""
    with pytest.raises(SlurmParseError, match=complaint):
        parse_sacct(text)
