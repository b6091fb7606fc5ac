"""What a cluster that is up is changed to: commands of accounting."""

from __future__ import annotations

from srunbook.cluster import Specification
from srunbook.cluster._accounting import changes, scripts


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

    assert "modify qos normal set priority=0 maxwall=01:00:00\n" in scripts(limited)[0]
    assert ["modify", "qos", "normal", "set", "maxwall=-1"] in changes(limited, Specification())[1]


def test_names_reach_the_shell_quoted():
    """An option with characters of the shell stays one word of sacctmgr."""
    first, _ = scripts(Specification(accounts={"a": {"options": {"Description": "$(x);y"}}}))

    assert "add account a 'Description=$(x);y'\n" in first
