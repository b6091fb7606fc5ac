"""Raise an exception of the program's own."""


class ShardError(Exception):
    """A shard is not what the index says."""


raise ShardError("shard 3 holds 991 rows, the index says 1000")
