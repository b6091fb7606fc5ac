"""Look up a setting that the configuration lacks."""

settings = {"lr": 0.1, "batch_size": 32}
print("warmup", settings["warmup_steps"])
