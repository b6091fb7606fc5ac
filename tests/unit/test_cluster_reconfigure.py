"""What a cluster that is up is changed to: commands of accounting, and what running jobs forbid."""

from __future__ import annotations

from typing import Any

import pytest

from srunbook.cluster import Specification
from srunbook.cluster._associations import accounts_script, changes
from srunbook.cluster._reconfigure import too_low

JOB = {
    "job": "7",
    "user": "alice",
    "partition": "batch",
    "qos": "short",
    "account": "research",
    "limit": "3:00:00",
    "nodes": "node[1-2]",
    "tres": "cpu=4,mem=2G,node=2,billing=4,gres/gpu=2,gres/gpu:a100=2",
}
BEFORE = Specification(qos={"short": {"max_wall": "04:00:00"}}, accounts={"research": {}, "other": {}})


def after(**values: Any) -> Specification:
    return Specification(**{"qos": {"short": {}}, "accounts": {"research": {}}, **values})


@pytest.mark.parametrize(
    ("new", "said"),
    [
        (after(), None),
        (
            after(partitions={"batch": {"max_time": "02:59:59"}}),
            "limit of 3:00:00, and partitions.batch.max_time is 02",
        ),
        (after(partitions={"batch": {"max_nodes": 1}}), "on 2 nodes, and max_nodes is 1"),
        (after(partitions={"batch": {"nodes": ["node[2-4]"]}, "x": {}}), "on node1, which the partition no longer has"),
        (after(partitions={"other": {}}), "partition batch, which is no longer there"),
        (after(qos={"short": {"max_wall": "01:00:00"}}), "and qos.short.max_wall is 01:00:00"),
        (after(qos={}), "with the QOS short, which is no longer there"),
        (after(accounts={"other": {}}), "with the account research, which is no longer there"),
        (after(qos={"short": {"max_tres_per_job": {"cpu": 4, "gres/gpu:a100": 1}}}), "with gres/gpu:a100=2, and qos."),
        (after(qos={"short": {"max_tres_per_user": {"mem": 2047}}}), "=2048, and qos.short.max_tres_per_user is 2047"),
        (after(qos={"short": {"grp_tres": {"node": 1}}}), "with node=2, and qos.short.grp_tres is 1"),
        (after(accounts={"research": {"grp_tres": {"cpu": 3}}}), "with cpu=4, and accounts.research.grp_tres is 3"),
        (after(qos={"short": {"grp_tres": {"cpu": 4, "mem": 2048, "gres/gpu": 2}}}), None),
    ],
    ids=[
        *("nothing-lower", "time", "nodes", "other-nodes", "no-partition", "wall", "no-qos", "no-account"),
        *("job", "user", "all", "of-account", "just-enough"),
    ],
)
def test_a_running_job_keeps_what_it_needs(new, said):
    """A limit below what a job needs is refused in a sentence that names job, user and limit."""
    told = list(too_low(BEFORE, new, [JOB]))

    assert len(told) == (said is not None)
    if said:
        assert told[0].startswith("job 7 of alice runs in partition batch")
        assert said in told[0]


def test_only_what_differs_is_changed():
    """QOS and accounts are added, changed and deleted; a limit that is left out is taken back."""
    old = Specification(
        qos={"a": {"grp_tres": {"cpu": 4, "node": 1}}, "b": {}}, accounts={"x": {"max_jobs": 2}, "y": {}}
    )
    new = Specification(
        qos={"a": {"grp_tres": {"cpu": 8}}, "b": {}, "c": {"grp_tres": {"node": 2}}},
        accounts={"x": {}, "z": {"parent": "x"}},
    )

    assert changes(old, old) == ([], [])
    assert changes(old, new) == (
        [
            ["add", "qos", "c", "priority=0"],
            ["add", "account", "z", "parent=x", "qos=normal,a,b,c"],
            ["add", "user", "alice", "account=z"],
            ["add", "user", "bob", "account=z"],
        ],
        [
            ["modify", "qos", "a", "set", "grptres=cpu=8,node=-1"],
            ["modify", "qos", "c", "set", "grptres=node=2"],
            ["modify", "account", "x", "set", "qos=normal,a,b,c", "maxjobs=-1"],
            ["delete", "account", "y"],
        ],
    )


def test_no_user_keeps_a_default_account_that_goes():
    """Where the default account of users is deleted, they have another one first."""
    old, new = (Specification(accounts={name: {} for name in names}) for names in ("xy", "y"))

    assert changes(old, new)[1] == [
        ["modify", "user", "alice", "set", "defaultaccount=y"],
        ["modify", "user", "bob", "set", "defaultaccount=y"],
        ["delete", "account", "x"],
    ]


def test_what_is_taken_back_has_the_word_that_sacctmgr_knows():
    """Names are taken back by nothing, root or cluster, and numbers by -1."""
    words = {"max_wall": "01:00:00", "preempt_mode": "CANCEL", "preempt": ["b"]}
    old = Specification(qos={"a": words, "b": {}}, accounts={"x": {}, "y": {"parent": "x"}})
    new = Specification(qos={"a": {}, "b": {}}, accounts={"x": {}, "y": {}})

    assert changes(old, new)[1] == [
        ["modify", "qos", "a", "set", "maxwall=-1", "preemptmode=cluster", "preempt="],
        ["modify", "account", "y", "set", "parent=root"],
    ]


def test_the_qos_that_is_there_is_modified():
    """Accounting begins with the QOS normal: it is neither added nor deleted."""
    limited = Specification(qos={"normal": {"max_wall": "01:00:00"}})

    assert "modify qos normal set priority=0 maxwall=01:00:00\n" in accounts_script(limited)
    assert ["modify", "qos", "normal", "set", "maxwall=-1"] in changes(limited, Specification())[1]


def test_names_reach_the_shell_quoted():
    """An option with characters of the shell stays one word of sacctmgr."""
    text = accounts_script(Specification(accounts={"a": {"options": {"Description": "$(x);y"}}}))

    assert "add account a 'Description=$(x);y'\n" in text
