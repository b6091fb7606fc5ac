"""Add a text to a number."""

steps = "100"
print("last step", steps + 1)
