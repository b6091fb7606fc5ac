"""Log exceptions with their tracebacks and go on, as loaders of damaged files do."""

import json
import logging

logging.basicConfig(format="%(levelname)s %(message)s")
for name, text in {"a.json": "{}", "b.json": "{", "c.json": "[]"}.items():
    try:
        json.loads(text)
    except ValueError:
        logging.exception("%s is damaged and left out", name)
print("2 of 3 files read", flush=True)
