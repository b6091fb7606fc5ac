"""Name the exit statuses of `srunbook verify`: one for each cause."""

from __future__ import annotations

from enum import IntEnum


class Cause(IntEnum):
    """Why a job is not verified. The number is the exit status of the command."""

    meaning: str
    """The cause in words."""

    def __new__(cls, status: int, meaning: str) -> Cause:
        """Give a status its meaning."""
        member = int.__new__(cls, status)
        member._value_ = status
        member.meaning = meaning
        return member

    VERIFIED = 0, "every check passed"
    BROKEN_OFF = 1, "the verification itself broke off, as on a file that cannot be read"
    BAD_INPUT = 2, "no such folder, or not a job id; nothing was looked at"
    NOT_PROVEN = 3, "no check failed, but at least one could not be made"

    UNKNOWN_JOB = 10, "sacct does not know the job"
    PENDING = 11, "the job waits to start"
    RUNNING = 12, "the job runs"
    REQUEUED = 13, "the job was requeued and has not ended again"
    OTHER_JOB = 14, "accounting gave rows of another job"

    FAILED = 20, "the job or a step ended with FAILED, or with an exit code that is not 0:0"
    CANCELLED = 21, "the job or a step was CANCELLED"
    TIMEOUT = 22, "the job or a step ended with TIMEOUT"
    OUT_OF_MEMORY = 23, "the job or a step ended with OUT_OF_MEMORY"
    NODE_FAIL = 24, "the job or a step ended with NODE_FAIL"
    OTHER_STATE = 25, "the job or a step ended in another state, such as PREEMPTED or DEADLINE"

    RAN_NOTHING = 30, "no step was started, or a rank made no step, whatever Slurm says"
    RANK_LINE_DAMAGED = 31, "a rank line cannot be read, or is of another job"
    WORLD_SIZE = 32, "the world size is wrong, as where each rank is alone in a world of 1"
    RANK_TWICE = 33, "two processes were the same rank, two ranks one process, or a rank ended twice"
    RANK_MISSING = 34, "a rank's log or its start line is missing"
    HOSTS = 35, "the ranks ran on other nodes, or on fewer, than the job was given"
    BACKEND = 36, "a rank used another backend"
    UNFINISHED = 37, "a rank started and did not say how it ended"
    PARAMETERS = 38, "the parameters differ between ranks at the end"

    FILE_MISSING = 40, "a required file is missing"
    FILE_EMPTY = 41, "a required file is empty"
    FILE_MALFORMED = 42, "a file is cut off, or metrics.csv has other columns, or a cell that is not a number"
    EPOCH_MISSING = 43, "an epoch is missing in metrics.csv"
    EPOCH_TWICE = 44, "an epoch is in metrics.csv twice"
    EPOCH_ORDER = 45, "the epochs do not ascend, or are not those that every rank was asked for"
    NOT_FINITE = 46, "a number in metrics.csv, or the last loss of a rank, is not finite"
    LOSS_DIFFERS = 47, "metrics.csv and the log of rank 0 differ"


NOT_OVER = (Cause.PENDING, Cause.RUNNING, Cause.REQUEUED)
"""Causes of a job that has not ended, and may still become any other."""
