"""Simulate weeks on 64 nodes: which share of the time is useful, for several intervals between saves.

    python week.py

It prints a table and draws `week.png`. Put your own numbers into the lines marked EDIT.
"""

import matplotlib.pyplot as plt
import numpy as np

NODES, DAYS = 64, 264  # EDIT: nodes of the job; mean time between failures of one node
SAVE, PAUSE = 60, 5  # EDIT: seconds of a save; seconds for which training pauses if it's saved in the background
RESTART = 600  # EDIT: seconds from a failure to the next step
MEAN = DAYS * 86400 / NODES  # seconds between failures of the job
WEEK, WEEKS = 7 * 86400, 300


def simulate(seed, interval, pause):
    """Return the share of a week in which the job trained, without the training that it lost."""
    random = np.random.default_rng(seed)
    failure = random.exponential(MEAN)
    start = kept = 0
    while failure < WEEK:
        saves = (failure - start - (SAVE - pause)) // (interval + pause)  # whole on disk before the failure
        kept += max(0, saves) * interval
        start = failure + RESTART
        failure += random.exponential(MEAN)  # it may also strike during the restart, or during a save
    return (kept + max(0, WEEK - start) * interval / (interval + pause)) / WEEK  # the job ends with a save


def formula(interval, pause):
    """Return the share that Daly's model predicts for a long run."""
    return interval / MEAN / np.exp((RESTART + SAVE - pause) / MEAN) / np.expm1((interval + pause) / MEAN)


minutes = np.array([5, 10, 20, 40, 80, 160, 320, 640, 1280])
line = np.geomspace(minutes[0], minutes[-1])
figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
for colour, (name, pause) in zip(("C0", "C1"), {"foreground": SAVE, "background": PAUSE}.items(), strict=True):
    shares = np.array([[simulate(seed, 60 * each, pause) for seed in range(WEEKS)] for each in minutes])
    young = np.sqrt(2 * pause * MEAN) / 60
    print(f"in the {name}: save every {young:.0f} minutes (Young)")
    print("minutes    mean  worst to best week  formula")
    for each, row, share in zip(minutes, shares, formula(60 * minutes, pause), strict=True):
        print(f"{each:7}  {row.mean():6.1%}      {row.min():6.1%} to {row.max():6.1%}   {share:6.1%}")
    low, high = np.percentile(shares, [10, 90], axis=1)
    axes.fill_between(minutes, 100 * low, 100 * high, color=colour, alpha=0.2, linewidth=0)
    axes.plot(minutes, 100 * shares.mean(1), "o", color=colour, label=f"in the {name}")
    axes.plot(line, 100 * formula(60 * line, pause), color=colour)
    axes.plot(young, 100 * formula(60 * young, pause), "*", color=colour, markersize=16)
axes.set(xscale="log", xlabel="minutes between saves", ylabel="useful time (%)", ylim=(None, 100))
axes.set_xticks(minutes, minutes, minor=False)
axes.minorticks_off()
axes.legend()
figure.savefig("week.png")
