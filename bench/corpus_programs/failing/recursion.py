"""Walk a tree that contains itself."""

node = {}
node["left"] = node


def depth(tree: dict) -> int:
    """Return the depth of a tree."""
    return 1 + depth(tree["left"])


print(depth(node))
