"""Load the weights of a Llama into the parts of FSDP, and print the most memory that this rank needed for it.

Started by bench/fit_loading.py on ranks, with the folder of weights and the way as arguments.
"""

import re
import sys
import threading
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from llama import Llama, read_config
from pretrained import weights
from safetensors.torch import load_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard


def anonymous() -> int:
    """Return the bytes of this process that belong to no file: mapped files are shared, and can be dropped."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return 1024 * int(re.findall(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)[0])


def watch(most: list[int], end: threading.Event) -> None:
    """Note the most, looking every millisecond."""
    while not end.wait(0.001):
        most[0] = max(most[0], anonymous())


def load(model: torch.nn.Module, folder: str, way: str) -> None:
    """Load the weights in one of three ways."""
    if way == "each rank reads its parts":
        dcp.load(weights(model), storage_reader=dcp.HuggingFaceStorageReader(folder))
        return
    first = way == "rank 0 reads the file and sends"
    whole = load_file(Path(folder, "model.safetensors")) if dist.get_rank() == 0 or not first else {}
    set_model_state_dict(model, whole, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=first))


def main() -> None:
    """Load once."""
    folder, way = sys.argv[1:]
    with torch.device("meta"):
        model = Llama(read_config(folder))
    for block in model.model.layers:
        fully_shard(block)
    fully_shard(model)
    model.to_empty(device="cpu")
    before, end = anonymous(), threading.Event()
    most = [before]
    watching = threading.Thread(target=watch, args=(most, end))
    watching.start()
    dist.barrier()
    load(model, folder, way)
    end.set()
    watching.join()
    print("needed", dist.get_rank(), max(most[0], anonymous()) - before)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    main()
    dist.destroy_process_group()
