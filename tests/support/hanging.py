"""What a program calls before the point at which it is expected to hang."""

WATCH = """
def expect_hang():
    # The time runs from when all ranks are here: on a busy machine one may start much later than another.
    import faulthandler, os, time
    rank, count = (int(os.environ[name]) for name in ("SLURM_PROCID", "SLURM_NTASKS"))
    here = f"{os.path.abspath(__file__)}.{os.environ['SLURM_JOB_ID']}."
    open(f"{here}{rank}", "w").close()
    while not all(os.path.exists(f"{here}{other}") for other in range(count)):
        time.sleep(0.02)
    faulthandler.dump_traceback_later(5, exit=True)
"""

HUNG = "Timeout (0:00:05)!"
"""The first line of what a rank prints that has hung."""
