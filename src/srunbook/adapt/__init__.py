r"""Fit any job script to a site: its directives and the lines of its environment; every other byte stays.

>>> from srunbook import adapt, generate
>>> site = adapt.site(generate.Layer("my_cluster.yaml", {"partition": "batch", "account": "physics"}))
>>> made = adapt.adapt(b"#!/bin/bash\n#SBATCH -p gpu\nsrun hostname\n", site)
>>> print(made.data.decode(), end="")
#!/bin/bash
#SBATCH -p batch
#SBATCH --account=physics
srun hostname
>>> for change in made.changes:
...     print(change.line, change.text, f"[{change.origin}]")
2 --partition=gpu becomes --partition=batch [my_cluster.yaml]
2 --account=physics is added after this line [my_cluster.yaml]
"""

from __future__ import annotations

from srunbook.adapt.configuration import Site, site
from srunbook.adapt.fit import Adapted, adapt
from srunbook.adapt.plan import Change

__all__ = ["Adapted", "Change", "Site", "adapt", "site"]
