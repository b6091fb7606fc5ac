"""Stop at a loss that is no number."""

import math

loss = math.inf - math.inf
if math.isnan(loss):
    raise FloatingPointError("the loss is nan at step 17")
