"""Run a command that fails."""

import subprocess

subprocess.run(["tar", "--extract", "--file", "data.tar"], check=True)
