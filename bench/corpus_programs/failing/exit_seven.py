"""End with a status of its own."""

import sys

print("the budget of tokens is used up", flush=True)
sys.exit(7)
