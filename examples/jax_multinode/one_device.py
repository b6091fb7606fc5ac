"""Train a small network on one device: a GPU, or the CPU.

python one_device.py
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

STEPS = 100
BATCH_SIZE = 64
LEARNING_RATE = 0.05


def loss_of(params, images, labels):
    hidden = jnp.tanh(images @ params["w1"] + params["b1"])
    scores = jax.nn.log_softmax(hidden @ params["w2"] + params["b2"])
    return -jnp.mean(jnp.sum(jax.nn.one_hot(labels, 10) * scores, axis=1))


@jax.jit
def train_step(params, images, labels):
    loss, gradient = jax.value_and_grad(loss_of)(params, images, labels)
    return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, params, gradient), loss


def main():
    # Stand-in data: ten patterns under noise. Put your own dataset here.
    rng = np.random.default_rng(0)
    labels = rng.integers(10, size=2048)
    images = rng.normal(size=(10, 256))[labels] + 3 * rng.normal(size=(2048, 256))
    images = images.astype(np.float32)

    params = {"w1": rng.normal(size=(256, 64)) / 16, "b1": np.zeros(64)}
    params |= {"w2": rng.normal(size=(64, 10)) / 8, "b2": np.zeros(10)}
    params = jax.device_put(jax.tree.map(np.float32, params))

    for step in range(1, STEPS + 1):
        # The step's number is the seed: a step sees the same rows in each run.
        rows = np.random.default_rng(step).choice(len(images), BATCH_SIZE)
        params, loss = train_step(params, images[rows], labels[rows])
        if step % 20 == 0:
            print(f"step {step}: loss {loss:.6f}", flush=True)

    np.savez("model.tmp.npz", **params)
    Path("model.tmp.npz").replace("model.npz")


if __name__ == "__main__":
    main()
