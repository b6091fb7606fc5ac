"""Fits a job script to your cluster, as the command `srunbook adapt` does.

python adapt_job_script.py pretrain.sh --config my_cluster.yaml --in-place
"""

from srunbook.cli.adapt import command

if __name__ == "__main__":
    command(prog_name="srunbook adapt")
