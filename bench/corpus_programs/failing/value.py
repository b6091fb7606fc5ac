"""Read a number with a decimal comma."""

print("row 1", float("12,5"))
