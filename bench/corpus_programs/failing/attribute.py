"""Use what a function did not return."""

import re

print("epoch", re.search("epoch=([0-9]+)", "last.pt").group(1))
