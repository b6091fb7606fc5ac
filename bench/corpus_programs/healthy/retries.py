"""Read from a server that answers the third time, as object stores do on Mondays."""

import logging
import time

logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.INFO)
log = logging.getLogger("store")
for attempt in range(1, 4):
    if attempt < 3:
        log.warning("attempt %d of 5 failed (connection timed out), trying again in 0.1 s", attempt)
        time.sleep(0.1)
    else:
        log.info("shard-00017.tar read at attempt %d, 0 errors left", attempt)
