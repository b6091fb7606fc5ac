"""What all commands of `srunbook cluster` share: how they speak, how they end, which cluster they mean."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from srunbook import cluster
from srunbook.cluster import ClusterError, SpecificationError


def say(text: str) -> None:
    """Tell progress on stderr, so that stdout carries only the product."""
    click.echo(text, err=True)


def clearly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn what can go wrong into a sentence and an exit status: 2 for bad input, 1 for the rest."""

    @wraps(function)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except SpecificationError as error:
            say(f"srunbook cluster: {error}")
            sys.exit(2)
        except ClusterError as error:
            say(f"srunbook cluster: {error}")
            sys.exit(1)

    return wrapped


name_option = click.option("--name", default="srunbook", show_default=True, help="Which cluster.")
user_option = click.option("--user", default=cluster.USER, show_default=True, help="As whom.")
any_user_option = click.option(
    "--user", default=cluster.USER, show_default=True, help="As whom: a user of the cluster, or root."
)
node_option = click.option(
    "--node", default="login", show_default=True, help="On which machine: login, ctl, node1, ..."
)
