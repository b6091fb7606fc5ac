"""Dumps of PyTorch's flight recorder: who did not come, and files that cannot be used."""

from __future__ import annotations

import gzip
import json
import pickle

import pytest
from click.testing import CliRunner

from srunbook.cli import main
from srunbook.explain import Status

PAGE = "  Page: https://srunbook.readthedocs.io/en/latest/tools/hangs.html"
ALL_REDUCE, BARRIER = ("gloo:all_reduce", [[9]]), ("gloo:barrier", [])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Work in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def entry(number, done=True, made=ALL_REDUCE, group=("0", "default_pg")):
    """Return an entry as PyTorch 2.13 writes it."""
    name, sizes = made
    return {
        "collective_seq_id": number,
        "input_dtypes": ["Float"] * len(sizes),
        "input_sizes": sizes,
        "is_p2p": False,
        "op_id": number,
        "p2p_seq_id": 0,
        "pg_id": 0,
        "process_group": [*group],
        "profiling_name": name,
        "record_id": number - 1,
        "retired": done,
        "state": "scheduled",
        "time_created_ns": 1795441273670525336 + number,
        "timeout_ms": 1800000,
    }


def dump(entries, version="2.10", ranks="[]"):
    """Return a dump as PyTorch 2.13 writes it."""
    config = {"": {"desc": "", "name": "", "ranks": ranks}}
    status = {"0": {"last_completed_collective": "1"}}
    told = {"comm_lib_version": "", "entries": entries, "pg_config": config, "pg_status": status, "version": version}
    return json.dumps(told).encode()


def ordinary(length, *more):
    """Return a dump of so many all-reduces that are done, and what came after them."""
    return dump([*(entry(number) for number in range(1, length + 1)), *more])


def explain(folder, dumps, *arguments):
    """Run the command on dumps of some ranks."""
    for rank, content in dumps.items():
        (folder / f"rank_{rank}.json").write_bytes(content)
    return CliRunner().invoke(main, ["explain", *(f"rank_{rank}.json" for rank in dumps), *arguments])


def test_rank_that_did_not_come(folder):
    """The rank that stayed behind is named with its node, and so is the collective that it missed."""
    waits = ordinary(10, entry(11, done=False))
    (folder / "job.out").write_text("0: rank 0/4 start host=node1\n2: rank 2/4 start host=node3\n")
    done = explain(folder, {0: waits, 1: waits, 2: ordinary(10), 3: gzip.compress(waits)}, "job.out")

    assert (done.exit_code, done.stderr) == (Status.EXPLAINED, "")
    assert done.stdout.splitlines() == [
        "Rank 2 on node3 did not come to collective 11, gloo:all_reduce of [9] (default_pg).",
        "Rank 2 came last to 10, gloo:all_reduce of [9].",
        "Ranks 0, 1 and 3 wait in it.",
        PAGE,
    ]


def test_hang_as_json(folder):
    """For programs the same is told as JSON."""
    done = explain(folder, {0: ordinary(1, entry(2, done=False)), 1: ordinary(1)}, "--json")
    told = json.loads(done.stdout)

    assert told["status"] == "explained"
    assert told["dumps"] == ["rank_0.json", "rank_1.json"]
    assert told["hangs"] == [
        {
            "group": "default_pg",
            "collective": {"number": 2, "name": "gloo:all_reduce", "sizes": [[9]]},
            "waiting": [0],
            "absent": [{"rank": 1, "last": {"number": 1, "name": "gloo:all_reduce", "sizes": [[9]]}}],
            "others": [],
            "unheard": [],
        }
    ]


@pytest.mark.parametrize("made", [BARRIER, ("gloo:all_reduce", [[8]])])
def test_rank_that_made_another_collective(folder, made):
    """Where ranks came to different collectives, or with other sizes, both are told."""
    waits = ordinary(4, entry(5, done=False))
    done = explain(folder, {0: waits, 1: ordinary(4, entry(5, done=False, made=made)), 2: waits})
    other = made[0] + (" of [8]" if made[1] else "")

    assert done.stdout.splitlines()[:3] == [
        "Rank 1 made another collective than the other ranks.",
        f"Rank 1 made 5, {other}; the others made 5, gloo:all_reduce of [9] (default_pg).",
        "Ranks 0 and 2 wait in it.",
    ]


def test_sizes_may_differ_in_other_collectives(folder):
    """An all-gather of objects has another size on each rank."""
    gathers = [entry(2, made=("gloo:gather", [[rank]])) for rank in range(3)]
    waits = [ordinary(1, gather, entry(3, done=False)) for gather in gathers]
    done = explain(folder, {0: waits[0], 1: waits[1], 2: ordinary(1, gathers[2])})

    assert done.stdout.startswith("Rank 2 did not come to collective 3,")


def test_rank_without_a_dump(folder):
    """A rank that left no dump is the one they wait for, where all others came."""
    waits = dump([entry(1), entry(2, done=False)], ranks="[0, 1, 2, 3]")
    done = explain(folder, {0: waits, 1: waits, 2: waits})

    assert done.stdout.startswith("Rank 3 left no dump, and the others wait in collective 2, gloo:all_reduce of [9]")


def test_rank_that_came_to_nothing(folder):
    """A rank whose recorder is empty has not come to the first collective."""
    done = explain(folder, {0: ordinary(0, entry(1, done=False)), 1: dump([])})

    assert done.stdout.startswith("Rank 1 did not come to collective 1,")
    assert "Rank 1 made none before." in done.stdout


def test_all_wait(folder):
    """Where every rank came, the network is suspected."""
    waits = ordinary(0, entry(1, done=False))

    assert "suspect the network between the nodes" in explain(folder, {0: waits, 1: waits}).stdout


def test_old_entries_were_overwritten(folder):
    """The recorder keeps the last entries only, and each rank others."""
    late = dump([*(entry(number) for number in range(800, 900)), entry(900, done=False)])
    done = explain(folder, {0: late, 1: dump([entry(number) for number in range(700, 800)])})

    assert done.stdout.splitlines()[0].startswith("Rank 1 did not come to collective 900,")
    assert done.stdout.splitlines()[1] == "Rank 1 came last to 799, gloo:all_reduce of [9]."


def test_two_groups_wait_for_each_other(folder):
    """Ranks that make the collectives of two groups in another order wait for each other; both are told."""
    pair = ("3", "undefined")
    first = dump([entry(1), entry(1, group=pair), entry(2, done=False)])
    second = dump([entry(1), entry(1, group=pair), entry(2, done=False, group=pair)])
    lines = explain(folder, {0: first, 1: second}).stdout.splitlines()

    assert "Rank 1 did not come to collective 2, gloo:all_reduce of [9] (default_pg)." in lines
    assert "Rank 0 did not come to collective 2, gloo:all_reduce of [9] (group 3)." in lines


def test_nobody_waits(folder):
    """Where no rank waits in a collective, that is told; gloo records no send and no receive."""
    done = explain(folder, {0: ordinary(3), 1: ordinary(3)})

    assert done.exit_code == Status.NOTHING_FAILED
    assert done.stdout.startswith("In 2 dumps, no rank waits in a collective. gloo does not record send and recv.\n")


def test_logs_beside_dumps(folder):
    """What a log says of the rank follows what the dumps say."""
    (folder / "job.out").write_text("1: MemoryError: too much\n")
    done = explain(folder, {0: ordinary(0, entry(1, done=False)), 1: ordinary(0)}, "job.out")

    assert done.stdout.index("Rank 1 did not come") < done.stdout.index("MemoryError: too much")
    assert done.exit_code == Status.EXPLAINED


def test_dump_of_another_version(folder):
    """Another version is told, with status 2, and what could be read is told, too."""
    waits = dump([entry(1, done=False)], version="2.4")
    done = explain(folder, {0: waits, 1: dump([])})

    assert done.exit_code == Status.BAD_INPUT
    assert done.stderr == (
        "srunbook explain: rank_0.json: a dump of version 2.4, expected 2.10 of PyTorch 2.13: read as if it were one\n"
    )
    assert done.stdout.startswith("Rank 1 did not come to collective 1,")


class Trap:
    """Something that runs a program when it is unpickled."""

    def __reduce__(self):
        """Return what pickle calls."""
        return (open, ("ran", "w"))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rank_0.json", dump([entry(1)])[:-40], "the dump is cut off or damaged: nothing in it was read"),
        ("dump.json", dump([entry(1)]), "a dump whose name tells no rank: call it rank_3.json if rank 3 wrote it"),
        ("rank_0.json", dump([{"state": "x"}], "3.0"), "a dump of version 3.0 in another form, expected 2.10"),
        ("rank_0.json", dump([{**entry(1), "collective_seq_id": "1"}]), "a dump of version 2.10 in another form"),
        ("rank_0.json", dump([entry(1, made=("x", [["y"]]))]), "a dump of version 2.10 in another form"),
        ("rank_0.json", dump([], ranks='["x"]'), "a dump of version 2.10 in another form"),
        ("rank_0.json", dump({"entries": 3}), "a dump of version 2.10 in another form"),
        ("rank_0.json", b'{"entries": ' + b"[" * 100_000, "the dump is cut off or damaged"),
        ("nccl_trace_rank_0", pickle.dumps(Trap()), "a pickle, which can run any program when it is read"),
    ],
)
def test_dump_that_cannot_be_used(folder, name, content, said):
    """A dump that is cut off, of another form, or a pickle is told with status 2; nothing in a pickle runs."""
    (folder / name).write_bytes(content)
    done = CliRunner().invoke(main, ["explain", name])

    assert done.exit_code == Status.BAD_INPUT
    assert done.stderr.startswith(f"srunbook explain: {name}: {said}")
    assert not (folder / "ran").exists()


def test_two_dumps_of_one_rank(folder):
    """Of two dumps of one rank the first is used, and the other named."""
    (folder / "again").mkdir()
    (folder / "again" / "rank_0.json").write_bytes(ordinary(3))
    done = explain(folder, {0: ordinary(3)}, "again/rank_0.json")

    assert done.stderr == "srunbook explain: again/rank_0.json: a second dump of rank 0: only rank_0.json was used\n"


def test_group_whose_name_tells_too_much(folder):
    """What a program calls a process group is masked like everything else."""
    group = ("4", "group of alice on gpu17.site.org")
    dumps = {0: dump([entry(1, done=False, group=group)]), 1: dump([entry(1, group=group)])}

    for arguments in (["--redact"], ["--redact", "--json"]):
        said = explain(folder, dumps, *arguments).stdout
        assert "gloo:all_reduce" in said
        assert "gpu17" not in said


def test_dump_that_is_too_large(folder, monkeypatch):
    """A dump beyond all measure is not read."""
    monkeypatch.setattr("srunbook.explain._flight.LARGEST", 1000)

    assert "a dump of more than 0 MiB, and not read" in explain(folder, {0: ordinary(9)}).stderr


def test_logs_in_json_are_logs(folder):
    """A log whose lines are JSON is read as a log."""
    (folder / "rank_0.json").write_text('{"event": "RuntimeError: Distributed package doesn\'t have NCCL built in"}\n')

    assert CliRunner().invoke(main, ["explain", "rank_0.json"]).exit_code == Status.EXPLAINED
