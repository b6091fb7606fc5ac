"""Warn of what users are mostly warned of, and go on."""

import warnings

warnings.simplefilter("always")
warnings.warn("The dataloader does not have many workers, which may be a bottleneck.", UserWarning, stacklevel=1)
warnings.warn("`lr` is deprecated and will be removed in 3.0; use `learning_rate`", DeprecationWarning, stacklevel=1)
warnings.warn("the default of `weights_only` will change", FutureWarning, stacklevel=1)
warnings.warn("failed to find a faster kernel, falling back to the slow one", RuntimeWarning, stacklevel=1)
print("step 10 loss 0.31", flush=True)
