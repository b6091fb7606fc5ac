"""Wait for a lock that another job holds."""

raise TimeoutError("cache/.lock is held by job 4711 since 300 s")
