"""How many digits a GPU keeps of matrix products and convolutions in float32, with the defaults and without TF32.

python bench/gpu_digits.py       # writes bench/results/gpu_digits.json

The error is the norm of the difference from the same product in float64, divided by the norm of the latter. Needs an
NVIDIA GPU, and PyTorch and JAX built for it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # PyTorch needs its part of the GPU

import jax
import jax.numpy as jnp
import numpy as np
import torch
from helpers.program import write
from measurements import Configuration

RESULT = Path(__file__).resolve().parent / "results" / "gpu_digits.json"
SIDE, CHANNELS, PIXELS = 2048, 64, 32


def error(found: Any, exact: torch.Tensor) -> float:
    """Return the relative error of a product."""
    difference = torch.as_tensor(np.asarray(found), dtype=torch.float64) - exact
    return float(difference.norm() / exact.norm())


def by_pytorch(x: torch.Tensor, y: torch.Tensor, *, convolve: bool) -> np.ndarray[Any, Any]:
    """Compute a product on the GPU with PyTorch."""
    x, y = x.float().cuda(), y.float().cuda()
    return (torch.nn.functional.conv2d(x, y, padding=1) if convolve else x @ y).cpu().numpy()


def by_jax(x: torch.Tensor, y: torch.Tensor, *, convolve: bool) -> np.ndarray[Any, Any]:
    """Compute a product on the GPU with JAX."""
    x, y = jnp.asarray(x.float().numpy()), jnp.asarray(y.float().numpy())
    return np.asarray(jax.lax.conv(x, y, (1, 1), "SAME") if convolve else x @ y)


def main() -> None:
    """Compute both products in each way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=RESULT)
    options = parser.parse_args()
    if not torch.cuda.is_available() or jax.default_backend() != "gpu":
        parser.error("needs an NVIDIA GPU, and PyTorch and JAX built for it")
    torch.manual_seed(0)
    factors = {
        "matrix product": [torch.randn(SIDE, SIDE, dtype=torch.float64) for _ in range(2)],
        "convolution": [torch.randn(shape, dtype=torch.float64) for shape in ((8, CHANNELS, PIXELS, PIXELS),)]
        + [torch.randn(CHANNELS, CHANNELS, 3, 3, dtype=torch.float64)],
    }

    def without_tf32() -> None:
        torch.backends.cudnn.allow_tf32 = False

    ways: list[tuple[str, str, Callable[..., Any], Callable[[], Any]]] = [
        ("PyTorch", "the default", by_pytorch, lambda: None),
        ("PyTorch", 'set_float32_matmul_precision("high")', by_pytorch, lambda: None),
        ("PyTorch", "cudnn.allow_tf32 = False", by_pytorch, without_tf32),
        ("JAX", "the default", by_jax, lambda: None),
        ("JAX", "JAX_DEFAULT_MATMUL_PRECISION=highest", by_jax, lambda: None),
    ]
    configurations = []
    for package, setting, compute, prepare in ways:
        prepare()
        torch.set_float32_matmul_precision("high" if "high" in setting and package == "PyTorch" else "highest")
        jax.config.update("jax_default_matmul_precision", "highest" if "highest" in setting else None)
        for product, (x, y) in factors.items():
            convolve = product == "convolution"
            exact = torch.nn.functional.conv2d(x, y, padding=1) if convolve else x @ y
            found = error(compute(x, y, convolve=convolve), exact)
            parameters = {"package": package, "setting": setting, "product": product}
            configurations.append(Configuration(f"{package}, {setting}, {product}", parameters, {"error": [found]}))
            print(f"{configurations[-1].name:70} {found:.1e}", flush=True)
    write(
        options.output,
        configurations,
        versions={name: importlib.metadata.version(name) for name in ("torch", "jax")},
        parameters={"matrices": f"{SIDE} x {SIDE}", "convolution": f"3 x 3, {CHANNELS} channels"},
        machine={"gpu": torch.cuda.get_device_name(0)},
    )


if __name__ == "__main__":
    main()
