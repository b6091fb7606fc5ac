"""Say what a model of seven billion parameters takes on each GPU, as the command `srunbook memory` does.

python memory_of_7b.py 7B --layers 32 --width 4096 --vocabulary 32000 --gpus 16 --gpu-memory 80
"""

from srunbook.cli.memory import command

if __name__ == "__main__":
    command(prog_name="srunbook memory")
