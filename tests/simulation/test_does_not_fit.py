"""The programs of the guide *When it does not fit*: the losses of one process in every layout, and bad input.

`pytest tests/simulation/test_does_not_fit.py --record --full` writes the recordings anew.
bench/does_not_fit.py compares all layouts in 64 bits, parameters included.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file
from support import forked
from support.programs import losses
from support.reader import Reader

from recordings import read_recording

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "does_not_fit"
IMPORTED = ("torch.distributed.checkpoint.state_dict", "torch.distributed.fsdp", "torch.distributed.pipelining")
"""What the programs import and takes a second."""

EXACT = 1e-5
"""Largest relative difference of a loss in float32: the same numbers, added in another order."""

MIXED = "MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)"
IN_32_BITS = (f"PRECISION = {MIXED}", "PRECISION = MixedPrecisionPolicy()")

AS_SRUN = """
import os
each = int(os.environ["LOCAL_WORLD_SIZE"])
os.environ |= {"SLURM_JOB_ID": "17", "SLURM_JOB_NAME": "lightning", "SLURM_NTASKS": os.environ["WORLD_SIZE"]}
os.environ |= {"SLURM_NTASKS_PER_NODE": str(each), "SLURM_PROCID": os.environ["RANK"]}
os.environ |= {"SLURM_NODEID": str(int(os.environ["RANK"]) // each), "SLURM_LOCALID": os.environ["LOCAL_RANK"]}
"""
"""What a rank of Lightning runs first: it asks Slurm, not torchrun, for its place."""

LAYOUTS = {
    "ddp.py": (1, 3),
    "fsdp.py": (1, 3),
    "hsdp.py": (2, 2),
    "tensor_parallel.py": (1, 2),
    "fsdp_tp.py": (2, 2),
    "pipeline.py": (1, 3),
    "less_memory.py": (1, 2),
    "context_parallel.py": (1, 2),
    "accelerate_fsdp.py": (1, 2),
    "trainer_fsdp.py": (1, 2),
    "lightning_fsdp_tp.py": (1, 2),
}
"""Nodes, and ranks on each. Three ranks divide neither the batch nor the layers evenly."""

pytestmark = pytest.mark.usefixtures("quick_start")


@pytest.fixture(scope="module")
def run(quick_start: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[forked.Run]:
    """Run a program of the guide on ranks."""
    with forked.running(EXAMPLES, tmp_path_factory, *IMPORTED) as start:
        yield start


@pytest.fixture(scope="module")
def one(run: forked.Run) -> forked.Outcome:
    """Train one process, where Slurm gave GPUs and torch sees none."""
    return run("ddp.py", 1, SLURM_GPUS_ON_NODE="2")


@pytest.mark.parametrize("name", LAYOUTS)
def test_losses_are_those_of_one_process(name: str, one: forked.Outcome, run: forked.Run) -> None:
    """In 32 bits, each layout prints the losses of one process, once."""
    nodes, processes = LAYOUTS[name]
    mixed = MIXED in (EXAMPLES / name).read_text(encoding="utf-8")
    before = AS_SRUN if name.startswith("lightning") else ""
    training = run(name, processes, nodes=nodes, edit=IN_32_BITS if mixed else None, before=before)

    assert set(training.statuses) == {0}, training.text
    assert len(one.losses) == 4
    assert training.losses == pytest.approx(one.losses, rel=EXACT)


def test_comparison_sees_a_wrong_norm(one: forked.Outcome, run: forked.Run) -> None:
    """Without the all-reduce of its norm, a pipeline has other losses."""
    training = run("pipeline.py", 2, edit=("        dist.all_reduce(norm)  # over all layers\n", ""))

    assert set(training.statuses) == {0}, training.text
    assert training.losses != pytest.approx(one.losses, rel=10 * EXACT)


def test_gpus_that_torch_does_not_see(one: forked.Outcome) -> None:
    """Where Slurm gave GPUs and torch sees none, one line says so before the first loss."""
    assert one.text.count("warning: Slurm gave this job GPUs and PyTorch sees none") == 1
    assert one.text.index("warning: ") < one.text.index("loss ")


# Bad input ------------------------------------------------------------------------------------------------------------

LAST = "nn.Sequential(Embedding(), *blocks, nn.LayerNorm(WIDTH), nn.Linear(WIDTH, len(CHARACTERS), bias=False))\n"
TIED = (
    f"    return {LAST}",
    f"    model = {LAST}    model[-1].weight = model[0].characters.weight\n    return model\n",
)
"""What makes the last layer share its weights with the first."""

BAD = [
    ("hsdp.py", 3, (2,), None, "3 ranks do not divide into groups of 2, only of 1, 3"),
    ("tensor_parallel.py", 3, (), None, "4 heads do not divide among 3 ranks"),
    ("fsdp_tp.py", 2, (2,), TIED, "a tied parameter would become two: tie it right after parallelize_module"),
    ("pipeline.py", 2, (), TIED, "two stages cannot share a tied parameter"),
    ("context_parallel.py", 3, (), None, "32 characters do not divide among 3 ranks"),
    ("llama_fsdp_tp.py", 3, ("weights", 3), None, "4 heads of keys and values do not divide among 3 ranks"),
    ("llama_fsdp_tp.py", 2, ("weights", 2), ("LENGTH = 32", "LENGTH = 33"), "33 tokens do not divide among 2 ranks"),
]


@pytest.mark.parametrize(("name", "processes", "arguments", "edit", "message"), BAD)
def test_bad_input_ends_all_ranks(
    name: str,
    processes: int,
    arguments: tuple[object, ...],
    edit: tuple[str, str] | None,
    message: str,
    run: forked.Run,
) -> None:
    """A layout that does not work out is refused in one line, by one rank, before anything is written."""
    training = run(name, processes, *arguments, edit=edit)

    assert training.refusal == f"error: {message}"
    assert not [*training.folder.glob("model*.pt"), *training.folder.glob("trained*")]


# A Llama, from a folder of weights ------------------------------------------------------------------------------------

NOT_MIXED = """
import torch.distributed.fsdp as fsdp
Policy = fsdp.MixedPrecisionPolicy
fsdp.MixedPrecisionPolicy = lambda *_, **__: Policy()
"""
"""What a rank runs first: everything in 32 bits."""

SCALED = {"rope_type": "llama3", "rope_theta": 500_000.0, "factor": 8.0, "low_freq_factor": 1.0}
SCALED |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 16}
"""Positions as in Llama 3.1, but for a short first training, so that some are scaled in part."""

SHORTER = ("STEPS = 40\n", "STEPS = 10\n")
TIE_AGAIN = (
    "        model.lm_head.weight = model.model.embed_tokens.weight  # parallelize_module has made it two parameters\n"
)


@pytest.fixture(scope="module")
def folders(llama: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write models with a number of words that no number of ranks divides; the head of one is tied."""
    root = tmp_path_factory.mktemp("weights")
    for name in ("free", "tied"):
        llama.make_small(root / name, vocab_size=4999, num_hidden_layers=2, tie_word_embeddings=name == "tied")
    return {path.name: path for path in root.iterdir()}


def trained(outcome: forked.Outcome) -> dict[str, Any]:
    """Return the weights that a program has written."""
    assert set(outcome.statuses) == {0}, outcome.text
    (path,) = (outcome.folder / "trained").glob("*.safetensors")
    return load_file(path)


def farthest(outcome: forked.Outcome, one: forked.Outcome) -> float:
    """Return the largest difference of a weight."""
    found, expected = trained(outcome), trained(one)
    assert found.keys() == expected.keys()
    return max(float((found[name] - weight).abs().max()) for name, weight in expected.items())


def test_llama_trains_the_same_model_in_every_layout(folders: dict[str, Path], run: forked.Run) -> None:
    """FSDP with tensor parallelism and a pipeline write the weights that one process does; an untied head shows.

    Transformers loads what they write.
    """

    def start(name: str, ranks: int, *arguments: object, edit: tuple[str, str] = SHORTER) -> forked.Outcome:
        return run(name, ranks, *arguments, edit=edit, before=NOT_MIXED)

    one, tied = (start("llama_fsdp_tp.py", 1, folders[name], 1) for name in ("free", "tied"))
    both = start("llama_fsdp_tp.py", 4, folders["tied"], 2)
    staged = start("llama_pipeline.py", 2, folders["free"])

    assert both.losses == pytest.approx(tied.losses, rel=EXACT)
    assert staged.losses == pytest.approx(one.losses, rel=EXACT)
    assert "lm_head.weight" not in trained(tied)
    for outcome in (both, staged):
        folder = outcome.folder / "trained"
        _, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        assert not info["missing_keys"] | info["unexpected_keys"]
    assert farthest(both, tied) < 1e-4
    assert farthest(staged, one) < 1e-4

    untied = start("llama_fsdp_tp.py", 2, folders["tied"], 2, edit=(TIE_AGAIN, "        pass\n"))
    assert "Missing key in checkpoint state_dict: lm_head.weight" in untied.text


HELPERS = "blocks.py"
LOOP = "    for block in model.model.layers:\n"
WAIT = "    wait_for(model.model.embed_tokens)\n"
COMPILED = (
    SHORTER,
    ("import os\n", f"import os\nfrom {HELPERS.removesuffix('.py')} import recomputed, wait_for\n"),
    (
        "        fully_shard(block,",
        "        block.forward = recomputed(block.forward)\n"
        '        block.compile(backend="aot_eager")\n'
        "        fully_shard(block,",
    ),
)


@pytest.mark.full
def test_compiled_blocks_train_the_same_llama(folders: dict[str, Path], run: forked.Run) -> None:
    """With tensor parallelism, blocks can be recomputed and compiled; without waiting, the embedding learns nothing."""

    def start(*edits: tuple[str, str]) -> list[float]:
        return run("llama_fsdp_tp.py", 2, folders["free"], 2, edits=edits, before=NOT_MIXED).losses

    plain, compiled, wrong = start(SHORTER), start(*COMPILED, (LOOP, WAIT + LOOP)), start(*COMPILED)

    assert len(plain) == len(wrong) == 1
    assert compiled == pytest.approx(plain, rel=EXACT)
    assert wrong != pytest.approx(plain, rel=100 * EXACT)


def test_llama_computes_what_transformers_does(llama: ModuleType, tmp_path: Path) -> None:
    """A Llama has the weights and logits of Hugging Face's, and so does one made of Phi-3's fused layers."""
    shape = {"vocab_size": 500, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2}
    shape |= {"num_attention_heads": 8, "num_key_value_heads": 4}
    tokens = torch.arange(40).square().view(2, 20) % 500
    for name, config, model in (
        ("llama", transformers.LlamaConfig(**shape), transformers.LlamaForCausalLM),
        ("scaled", transformers.LlamaConfig(**shape, rope_parameters=SCALED), transformers.LlamaForCausalLM),
        ("phi", transformers.Phi3Config(**shape, pad_token_id=0, eos_token_id=1), transformers.Phi3ForCausalLM),
    ):
        theirs = model(config).eval()
        theirs.save_pretrained(tmp_path / name)
        if name == "phi":
            with pytest.raises(SystemExit, match="can't compute the model_type"):
                llama.read_config(tmp_path / name)
            subprocess.run([sys.executable, EXAMPLES / "unfuse.py", tmp_path / name, tmp_path / "split"], check=True)
            name = "split"
        ours = llama.Llama(llama.read_config(tmp_path / name))
        ours.load_state_dict(load_file(tmp_path / name / "model.safetensors"))

        torch.testing.assert_close(ours(tokens), theirs(tokens).logits)


def test_pipeline_refuses_a_tied_llama(folders: dict[str, Path], run: forked.Run) -> None:
    """Its first and last stages would train two heads."""
    assert run("llama_pipeline.py", 2, folders["tied"]).refusal == "error: two stages cannot share a tied parameter"


# As a reader runs them ------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_two_nodes_on_a_laptop(reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of the page runs a torchrun on each simulated node; groups are those of a node."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    page = (EXAMPLES.parents[1] / "docs" / "guides" / "does-not-fit" / "several-nodes.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"^\$ (srunbook simulate (?:.*\\\n)?.*)$", page, re.MULTILINE)
    result = reader.run(EXAMPLES / "hsdp.py", command.replace("\\\n", " "))

    assert result.exit_code == 0, result.text
    recorded = read_recording(EXAMPLES / "hsdp.recording.json")
    assert losses(result.text) == pytest.approx(losses(recorded.text), rel=0.02)  # other ranks add in 16 bits
    assert len(losses(recorded.text)) == 4
