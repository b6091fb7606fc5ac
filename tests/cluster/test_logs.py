"""`srunbook cluster logs` shows what a job wrote, whatever its files are called; `status --json` has one form."""

from __future__ import annotations

import json

import jsonschema
import pytest
from click.testing import CliRunner

from srunbook import cluster
from srunbook.cli.cluster import command as cli
from srunbook.cluster import ClusterError, SpecificationError, State, _jobs, faults
from srunbook.slurm import outputs

ARRAY = """\
#!/bin/bash
#SBATCH --array=1-2
#SBATCH --job-name=train
#SBATCH --output=%x-%A.%a.out
#SBATCH --error=%x-%A.%a.err
echo element $SLURM_ARRAY_TASK_ID
echo complaint $SLURM_ARRAY_TASK_ID >&2
"""


def shown(slurm: State, job: str, **options: bool) -> tuple[str, list[str]]:
    """Return what `logs` shows, and what it says besides."""
    text: list[str] = []
    said: list[str] = []
    cluster.logs(slurm, job, text.append, say=said.append, **options)
    return "".join(text), said


@pytest.fixture(scope="module")
def array(slurm: State, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Run an array whose files have names of their own; return its number."""
    script = tmp_path_factory.mktemp("logs") / "named.sbatch"
    script.write_text(ARRAY)
    return cluster.submit(slurm, script).identity


def test_files_of_any_name(slurm, array, monkeypatch):
    """Output and errors of each element are shown under their names, also once the controller has forgotten the job."""
    each = [
        f"==> train-{array}.{n}.out <==\nelement {n}\n==> train-{array}.{n}.err <==\ncomplaint {n}\n" for n in (1, 2)
    ]

    assert shown(slurm, array) == ("".join(each), [])
    monkeypatch.setattr(outputs, "_of_scontrol", lambda _: ())
    monkeypatch.setattr(_jobs, "queue_states", lambda *_: {})
    assert shown(slurm, array) == ("".join(each), [])
    assert shown(slurm, f"{array}_2") == (each[1], [])


def test_a_running_job_is_followed_to_its_end(slurm, as_user):
    """What is there is shown at once, and with `follow` the rest as it comes; bob's files are read by bob."""
    wrapped = "--wrap=echo before; until [ -e ~/go ]; do sleep 0.1; done; echo after; rm ~/go"
    job = as_user("sbatch", "--parsable", wrapped, user=cluster.SECOND_USER).strip()
    seen: list[str] = []

    def show(text: str) -> None:
        seen.append(text)
        if "".join(seen) == "before\n":
            as_user("touch", f"/home/{cluster.SECOND_USER}/go", user=cluster.SECOND_USER)

    cluster.logs(slurm, job, show, follow=True)

    assert "".join(seen) == "before\nafter\n"
    assert shown(slurm, job) == ("before\nafter\n", [])


def test_nothing_to_show(slurm, as_user):
    """A job that waits, and one that writes nothing, are told apart from one that does not exist."""
    held = as_user("sbatch", "--parsable", "--hold", "--wrap=true").strip()
    quiet = as_user("sbatch", "--parsable", "--wait", "--output=quiet.log", "--wrap=true").strip()
    waits, silent = shown(slurm, held), shown(slurm, quiet)
    as_user("scancel", held)

    assert waits == ("", [f"job {held} (PENDING) has not started, so it has written nothing"])
    assert silent == ("", [f"job {quiet} (COMPLETED) has written nothing: its output goes to /home/alice/quiet.log"])
    with pytest.raises(ClusterError, match="Slurm knows no job 999999 on cluster"):
        shown(slurm, "999999")
    with pytest.raises(SpecificationError, match="job '17; rm': give a number"):
        shown(slurm, "17; rm")


def test_the_command(slurm, array):
    """The command prints the same and nothing else, and ends with 2 for what is no number."""
    name = ["--name", slurm.specification.name]
    done = CliRunner().invoke(cli, ["logs", *name, f"{array}_1"])
    refused = CliRunner().invoke(cli, ["logs", *name, "train"])

    assert (done.exit_code, done.stdout) == (0, shown(slurm, f"{array}_1")[0])
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert (
        refused.stderr == "srunbook cluster: job 'train': give a number, as in 17, in 56_3 for an element or in 56+1\n"
    )


def test_status_for_programs(slurm, healed):
    """`status --json` keeps to its schema, and says of nodes and faults what the lines for people say."""
    faults.drain(healed, "node4")
    name = ["--name", slurm.specification.name]
    done = CliRunner().invoke(cli, ["status", *name, "--json"])
    lines = CliRunner().invoke(cli, ["status", *name]).stdout.splitlines()
    found = json.loads(done.stdout)
    jsonschema.Draft202012Validator.check_schema(cluster.status_schema())
    jsonschema.Draft202012Validator(cluster.status_schema()).validate(found)

    assert (found["schema"], found["name"], found["users"]) == (1, slurm.specification.name, ["alice", "bob"])
    assert found["faults"] == [{"kind": "drain", "node": "node4"}]
    assert [node["state"] for node in found["nodes"]][3] in ("drain", "drng")
    assert [f"{node['name']} {node['address']} {node['state']}" for node in found["nodes"]] == lines[-4:]
