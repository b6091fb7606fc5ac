"""Code for a rank to run before a program: it is killed before it renames a file for the n-th time."""

KILLED_BEFORE_RENAME = """
import os
own, ends, done = os.replace, {ends!r}, []
def killed(source, target):
    if str(target).endswith(ends):
        done.append(target)
        if len(done) == {number}:
            os._exit(9)
    own(source, target)
os.replace = killed
"""
"""Of the files whose names have one of these `ends`."""
