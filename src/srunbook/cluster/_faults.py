"""Faults on demand."""

from __future__ import annotations

from srunbook.cluster._namespaces import in_network
from srunbook.cluster._state import State


def shape_link(state: State, node: str, rate: str | None) -> None:
    """Limits the rate of a node's link in both directions, or lifts the limit."""
    for member, device in ((node, "eth0"), (None, f"v-{node}")):
        qdisc = ["tc", "qdisc", "replace" if rate else "del", "dev", device, "root"]
        shape = ["tbf", "rate", rate, "burst", "128kb", "latency", "50ms"] if rate else []
        in_network(state, member, [*qdisc, *shape])
