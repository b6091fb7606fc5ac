"""Kill at random with a fixed seed, again and again: how much of the time is of use."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest
import torch
from measurements import Configuration, Measurement, write_measurement

import srunbook

RESULT = Path(__file__).resolve().parents[3] / "bench" / "results" / "goodput.json"
SEED = 18
STEPS = 7000
"""Steps of the whole training."""

BETWEEN_KILLS = 800
"""Steps from a start to a kill, in the mean; the number is drawn from an exponential distribution."""

INTERVAL = 70
"""Steps from save to save."""

STEPS_OF_AN_EPOCH = 14


def predicted(step: float, save: float, restart: float) -> float:
    """Share of the time that is of use, as Young and Daly predict it.

    A piece of work of length s that begins anew after each failure takes (M + R) (exp(s / M) - 1) in the mean, where M
    is the mean time between failures and R the time from a failure to the first step after it.

    Args:
        step: Seconds of a step.
        save: Seconds of a save.
        restart: Seconds of a restart.

    >>> round(predicted(0.01, 0.0, 0.0), 2)
    0.96
    """
    work = INTERVAL * step
    between = BETWEEN_KILLS * (step + save / INTERVAL)
    return work / ((between + restart) * math.expm1((work + save) / between))


def seconds_of_a_step(submit, interval: int) -> float:
    """Measures undisturbed steps with a save after so many."""
    first, last = "mark:0:100:step", "mark:0:660:step"
    arguments = [f"--epochs={700 // STEPS_OF_AN_EPOCH}", f"--save-every={interval}"]
    trial = submit(f"{first};{last}", arguments=arguments)
    assert trial.await_end().state == "COMPLETED"
    began, ended = (trial.events("fault", fault=fault)[0]["time"] for fault in (first, last))
    return (ended - began) / 560


def record(slurm: str, **samples: float) -> None:
    """Write what came out."""
    name = "kills at random steps"
    measurement = Measurement.taken_now(
        "nox -s faults -- --full --record",
        [Configuration(name, {"fault": name}, {key: [float(f"{x:.3g}")] for key, x in samples.items()})],
        versions={"srunbook": srunbook.__version__, "slurm": slurm, "torch": torch.__version__},
        parameters={"seed": SEED, "steps": STEPS, "steps_between_kills": BETWEEN_KILLS, "save_every": INTERVAL},
    )
    write_measurement(RESULT, measurement)


@pytest.mark.full  # takes five minutes and measures: it needs a quiet machine
def test_goodput_under_kills(healed, submit, request):
    """Under kills at random steps, the share of useful time is within 10% of the prediction."""
    step = seconds_of_a_step(submit, 100_000)
    save = INTERVAL * (seconds_of_a_step(submit, INTERVAL) - step)
    drawn = random.Random(SEED)
    done, folder, restarts, killed, began, ended = 0, None, [], None, None, None
    while ended is None:
        rank, kill = drawn.randrange(2), 1 + math.ceil(drawn.expovariate(1 / BETWEEN_KILLS))
        first, last = "mark:0:1:step:always", f"mark:0:{STEPS - done}:step:always"
        faults = f"{first};{last};kill:{rank}:{kill}:backward:always"
        arguments = [f"--epochs={STEPS // STEPS_OF_AN_EPOCH}", f"--save-every={INTERVAL}", "--checkpoint-dir=soak"]
        trial = submit(faults, folder=folder, arguments=arguments)
        folder = trial.inside
        trial.await_over()
        started = trial.events("fault", fault=first)[0]["time"] if trial.events("fault", fault=first) else None
        if killed is not None and started is not None:
            restarts.append(started - killed)
        began = began or started
        if found := trial.events("fault", fault=last):
            ended = found[0]["time"]
            break
        killed = trial.events("fault")[-1]["time"]
        saved = [int(path.stem[5:]) for path in (trial.folder / "soak").glob("step_*.pt")]
        done = max(saved, default=0)
    goodput = STEPS * step / (ended - began)
    restart = sum(restarts) / len(restarts)
    expected = predicted(step, save, restart)
    if request.config.getoption("--record"):
        record(
            slurm=healed.root["slurm"],
            kills=len(restarts),
            step_ms=1000 * step,
            save_ms=1000 * save,
            restart_s=restart,
            useful_percent=100 * goodput,
            predicted_percent=100 * expected,
        )

    assert abs(goodput / expected - 1) <= 0.1
