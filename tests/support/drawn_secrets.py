"""Secrets of every kind, drawn, in the places where logs print them."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator


def word(draw: random.Random, length: int, letters: str = string.ascii_letters + string.digits) -> str:
    """Return a word of some length."""
    return "".join(draw.choices(letters, k=length))


def secret_lines(draw: random.Random) -> Iterator[tuple[str, str]]:
    """Yield a secret of each kind with every line that betrays it."""
    user, host = (
        word(draw, 7, string.ascii_lowercase),
        f"gpu{word(draw, 4, string.ascii_lowercase)}{draw.randint(1, 99)}",
    )
    octets = ".".join(str(draw.randint(1, 254)) for _ in range(4))
    hexes = ":".join(word(draw, 4, "0123456789abcdef") for _ in range(8))
    named = word(draw, 12)
    kinds = [
        (user, ["/home/{}/run/train.py", "~{}/x", "user={} uid=7", "uid=1000({}) gid=1"]),
        (user, ["/scratch/{}", "CANCELLED by {}"]),
        (host, ["host={} device=cpu", "srun: error: {}: task 0: Killed", "*** STEP 1.0 ON {} CANCELLED AT now ***"]),
        (host, ["connect to ({}, 29500)", "slurmstepd-{}: error: no", "(ReqNodeNotAvail, UnavailableNodes:{})"]),
        (f"{host}.cluster.uni-{user}.de", ["at {}:80", "connect to {}", "https://{}/x"]),
        (octets, ["remote=[{}]:1234", "tcp://{}:29500", "({}, 29500)", "{}", "addr {}."]),
        (hexes, ["remote=[{}]:80", "inet6 {} scope", "{}"]),
        (f"fe80::{word(draw, 4, '123456789abcdef')}", ["remote=[{}]:80", "{}"]),
        (f"::ffff:{octets}", ["addr=[{}]:50906, remote=x"]),
        (":".join(word(draw, 2, "0123456789abcdef") for _ in range(6)), ["ether {} txq", "mac={}"]),
        (f"hf_{word(draw, 34)}", ["token {}", "HF_TOKEN={}", "Invalid user token: {}", "'{}'"]),
        (f"ghp_{word(draw, 36)}", ["https://x:{}@github.com/a/b", "{}"]),
        (f"AKIA{word(draw, 16, string.ascii_uppercase)}", ["key {} refused"]),
        (f"sk-{word(draw, 40)}", ["api key {}", "OPENAI_API_KEY={}"]),
        (word(draw, 40, "0123456789abcdef") + "a1", ["wandb: {}", "key: {}"]),
        (named, ["password={}", "PASSWORD: {}", "Authorization: Bearer {}", '"api_key": "{}"', "WANDB_API_KEY={}"]),
        (named, ["aws_secret_access_key = {}", "token={}&x=1", "http://me:{}@proxy:3128"]),
        (f"eyJ{word(draw, 20)}.{word(draw, 30)}.{word(draw, 20)}", ["jwt {}"]),
        (f"AAAAB3{word(draw, 60)}", ["ssh-rsa {} a@b", "ssh-ed25519 {}"]),
        (f"{user}@example.org", ["mail to {} failed", "<{}>"]),
        (f"proj{user}", ["/data/groups/{}/set/a.npz", "cd: /gpfs/{}: not found", "open('/lustre/{}/x.h5')"]),
    ]  # fmt: skip
    for secret, places in kinds:
        for place in places:
            yield secret, f"[rank{draw.randint(0, 9)}]: {place.format(secret)}"
