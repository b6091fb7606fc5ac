"""`submit` waits for all of a job, takes along what it needs, and a task has the CPUs that it asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from srunbook import cluster
from srunbook.cli.cluster import command as cli
from srunbook.slurm import outputs

ARRAY = """\
#!/bin/bash
#SBATCH --array=1-3%2
echo element $SLURM_ARRAY_TASK_ID
sleep 0.$SLURM_ARRAY_TASK_ID
[ $SLURM_ARRAY_TASK_ID != 3 ]
"""

COMPONENTS = """\
#!/bin/bash
#SBATCH --nodes=1
#SBATCH hetjob
#SBATCH --nodes=1
srun --het-group=0,1 bash -c 'echo component $SLURM_PROCID; [ $SLURM_PROCID = 0 ]'
"""


def write(folder: Path, name: str, text: str) -> Path:
    """Write a script."""
    folder.joinpath(name).write_text(text)
    return folder / name


def test_an_array_ends_with_all_its_elements(slurm, tmp_path, monkeypatch):
    """All elements are waited for and printed, each under the name of its log; the one that failed decides."""
    told: list[str] = []
    options = ["--output=%x-%A.%a.out"]
    job = cluster.submit(slurm, write(tmp_path, "array.sbatch", ARRAY), options=options, follow=told.append)
    elements = [f"==> array.sbatch-{job.identity}.{n}.out <==\nelement {n}\n" for n in (1, 2, 3)]

    assert job.output == "".join(told) == "".join(elements)
    monkeypatch.setattr(outputs, "_of_scontrol", lambda _: ())  # as some minutes after the end
    assert cluster.await_job(slurm, job.identity).output == job.output
    assert (job.exit_status, job.state) == (1, "FAILED")
    states = {row["JobID"]: row["State"] for row in job.rows if "." not in row["JobID"]}
    assert states == {f"{job.identity}_{n}": "FAILED" if n == 3 else "COMPLETED" for n in (1, 2, 3)}


def test_a_heterogeneous_job_ends_with_all_its_components(slurm, tmp_path):
    """Each component has its rows, and one that failed decides."""
    job = cluster.submit(slurm, write(tmp_path, "components.sbatch", COMPONENTS))
    found = {row["JobID"]: row["State"] for row in job.rows}

    assert sorted(line for line in job.output.splitlines() if "component" in line) == ["component 0", "component 1"]
    assert job.exit_status == 1
    assert found[f"{job.identity}+0.0"] == "COMPLETED"
    assert found[f"{job.identity}+1.0"] == "FAILED"
    assert {row["Partition"] for row in job.rows if "." not in row["JobID"]} == {"batch"}


LETTERS = "".join(f"{letter}%{letter}_" for letter in "AabJjNnstux") + "%5j_%3t_100%%.log"
"""A name with every letter that sbatch documents."""


@pytest.mark.parametrize("options", [[], ["--array=12"]], ids=["job", "array"])
def test_a_log_is_found_whatever_letters_its_name_has(slurm, tmp_path, monkeypatch, options):
    """`scontrol` leads to the log while Slurm remembers the job, and `sacct` afterwards."""
    script = write(tmp_path, "named.sbatch", "#!/bin/bash\necho here\n")
    job = cluster.submit(slurm, script, options=["--nodelist=node[2-3]", f"--output={LETTERS}", *options])
    monkeypatch.setattr(outputs, "_of_scontrol", lambda _: ())
    later = cluster.await_job(slurm, job.identity)

    assert job.output.endswith("here\n")
    assert later.output == job.output


def test_a_script_that_slurm_refuses(slurm, tmp_path):
    """The words of sbatch are passed on."""
    with pytest.raises(cluster.ClusterError, match=r"sbatch refused array\.sbatch:\n.*error: "):
        cluster.submit(slurm, write(tmp_path, "array.sbatch", ARRAY), options=["--nodes=5"])


def test_the_name_of_a_folder_is_no_state(slurm, as_user):
    """What a user calls a folder or a job neither ends the wait nor prolongs it."""
    name = "x JobState=COMPLETED"
    as_user("mkdir", "--parents", name)
    options = [f"--chdir={name}", "--job-name=z JobState=FAILED", "--wrap=sleep 2; echo late; exit 3"]
    job = as_user("sbatch", "--parsable", *options).strip()
    found = cluster.await_job(slurm, job)

    assert (found.state, found.exit_status, found.output) == ("FAILED", 3, "late\n")


def test_configuration_files_and_folders_come_along(slurm, tmp_path):
    """The job finds the configuration beside its script and the folder that was asked for; a link stays a link."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "model.json").write_text('{"width": 8}\n')
    (tmp_path / "conf" / "link").symlink_to("/etc/shadow")
    (tmp_path / "config.yaml").write_text("rate: 0.1\n")
    script = write(tmp_path, "needs.sbatch", "#!/bin/bash\ncat config.yaml conf/model.json\nreadlink conf/link\n")
    name = ["--name", slurm.specification.name]
    result = CliRunner().invoke(cli, ["submit", *name, "--with", str(tmp_path / "conf"), str(script)])

    assert result.exit_code == 0, result.output
    assert result.stdout == 'rate: 0.1\n{"width": 8}\n/etc/shadow\n'
