"""Read beyond the end of a split."""

rows = [*range(100)]
print("row", rows[128])
