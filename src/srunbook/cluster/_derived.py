"""What follows from the fields of a specification: names, numbers and addresses of nodes, users, limits."""

from __future__ import annotations

from functools import cached_property

from srunbook._yaml import shown
from srunbook.cluster._errors import SpecificationError
from srunbook.cluster._fields import Fields
from srunbook.cluster._sections import NodeGroup, Partition
from srunbook.cluster._values import suite_of
from srunbook.slurm import expand_hostlist

ALL = "nodes"
"""Name of the only group of nodes that are all alike."""


class Derived(Fields):
    """The fields of a specification and what follows from them."""

    @property
    def suite(self) -> str:
        """Return the Debian suite of its roots."""
        return suite_of(self.slurm)

    @cached_property
    def groups(self) -> dict[str, NodeGroup]:
        """Return the groups of nodes by name; nodes that are all alike are one group."""
        if isinstance(self.nodes, dict):
            return self.nodes
        gres = (f"gpu:{self.features[0]}:{self.gpus_per_node}",) if self.gpus_per_node else ()
        return {ALL: NodeGroup(count=self.nodes, cpus=self.cpus, memory=self.memory, gres=gres, features=self.features)}

    @cached_property
    def members(self) -> dict[str, range]:
        """Return the numbers of each group's nodes; they are counted through, from 1.

        >>> Derived(nodes={"a": {"count": 2}, "b": {"count": 1}}).members
        {'a': range(1, 3), 'b': range(3, 4)}
        """
        found, first = {}, 1
        for name, group in self.groups.items():
            found[name] = range(first, first + group.count)
            first += group.count
        return found

    @cached_property
    def node_names(self) -> tuple[str, ...]:
        """Name of the compute nodes.

        >>> Derived(nodes=2).node_names
        ('node1', 'node2')
        """
        return tuple(f"node{number}" for numbers in self.members.values() for number in numbers)

    def nodes_of(self, partition: Partition) -> tuple[str, ...]:
        """Return the names of a partition's nodes.

        Raises:
            SpecificationError: It names a group or a node that is not there.

        >>> Derived(nodes=3).nodes_of(Partition(nodes=("node[2-3]",)))
        ('node2', 'node3')
        """
        if partition.nodes is None:
            return self.node_names
        found: dict[str, None] = {}
        for item in partition.nodes:
            names = [f"node{number}" for number in self.members.get(item, ())]
            try:
                names = names or expand_hostlist(item)
            except ValueError as error:
                raise SpecificationError(f"{shown(item)} is neither a group nor a list of nodes: {error}") from None
            if absent := [name for name in names if name not in self.node_names]:
                groups = ", ".join(self.groups)
                raise SpecificationError(
                    f"{shown(item)}: there is no {absent[0]}. The nodes are node1 to {self.node_names[-1]}, "
                    f"the groups {groups}"
                )
            found |= dict.fromkeys(names)
        return tuple(found)

    @property
    def default_partition(self) -> str:
        """Return the partition of jobs that name none."""
        marked = [name for name, partition in self.partitions.items() if partition.default]
        return (marked or list(self.partitions))[0]

    @property
    def limited(self) -> list[str]:
        """Return the resources on which there is a limit in accounting."""
        limits = [
            one for qos in self.qos.values() for one in (qos.max_tres_per_job, qos.max_tres_per_user, qos.grp_tres)
        ]
        limits += [account.grp_tres for account in self.accounts.values()]
        return list(dict.fromkeys(name for limit in limits for name in limit))

    def group_of(self, node: str) -> NodeGroup:
        """Return the group of a node."""
        number = int(node.removeprefix("node"))
        return next(self.groups[name] for name, numbers in self.members.items() if number in numbers)

    @property
    def user_ids(self) -> dict[str, int]:
        """Return the numbers of the users: high ones, so that they are nobody on the host.

        >>> Derived(users={"carol": {}, "bob": {}}).user_ids
        {'carol': 20003, 'bob': 20002}
        """
        known = {"alice": 20001, "bob": 20002}
        others = (name for name in self.users if name not in known)
        known |= {name: number for number, name in enumerate(others, 20003)}
        return {name: known[name] for name in self.users}

    @property
    def machines(self) -> tuple[str, ...]:
        """Return the names of all machines of the cluster: the controller, the login node and the compute nodes."""
        return ("ctl", "login", *self.node_names)

    def address(self, machine: str) -> str:
        """Return the address of a machine in the cluster's own network.

        >>> Derived().address("node3"), Derived().address("ctl"), Derived().address("node256")
        ('10.77.0.3', '10.77.0.254', '10.77.1.6')
        """
        special = {"ctl": 254, "login": 253}
        number = special.get(machine) or int(machine.removeprefix("node"))
        return f"10.77.0.{number}" if number <= 250 or machine in special else f"10.77.1.{number - 250}"

    def hardware_address(self, machine: str) -> str:
        """Return the hardware address of a machine, which follows from its address.

        >>> Derived().hardware_address("node3")
        '02:00:0a:4d:00:03'
        """
        return ":".join(f"{int(part):02x}" for part in ("2", "0", *self.address(machine).split(".")))
