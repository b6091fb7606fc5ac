"""Train one model for each row of settings.csv with submitit, and print the results as they come.

python sweep_submitit.py
"""

import csv
import json
from pathlib import Path

import submitit

with Path("settings.csv").open(newline="") as file:
    numbers = range(1, 1 + len(list(csv.DictReader(file))))


def train(number):
    """Runs inside the job: train with the settings of a row, and return its result."""
    torchrun = ["torchrun", "--standalone", "--nproc-per-node=1", "train.py", str(number)]
    submitit.helpers.CommandFunction(torchrun)()
    return json.loads(Path("runs", str(number), "result.json").read_text())


executor = submitit.AutoExecutor(folder="log")  # the logs of all jobs
executor.update_parameters(
    name="my-sweep",
    slurm_array_parallelism=4,  # jobs that may run at once
    slurm_partition="gpu",  # EDIT: sinfo lists those of your site
    slurm_account="my-project",  # EDIT: or delete this line
    gpus_per_node=1,  # EDIT: and --nproc-per-node above
    cpus_per_task=4,  # EDIT: the CPU cores that go with the GPU
    mem_gb=16,  # EDIT
    timeout_min=10,  # EDIT
)
jobs = dict(zip(numbers, executor.map_array(train, numbers), strict=True))

failed = []
for number, job in jobs.items():
    try:
        print(number, job.result())  # waits until the job has ended
    except (submitit.core.utils.FailedJobError, submitit.core.utils.UncompletedJobError):
        failed.append(number)
print("failed:", failed)
