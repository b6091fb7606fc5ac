"""Print the configuration, with names that sound like trouble."""

CONFIGURATION = {
    "on_error": "continue",
    "error_if_nonfinite": False,
    "timeout": 1800,
    "max_failures": 3,
    "fault_tolerance": {"restart_failed": True, "abort_after": None},
    "warnings": "ignore",
    "log_level": "ERROR",
}
for name, value in CONFIGURATION.items():
    print(f"{name}={value}", flush=True)
