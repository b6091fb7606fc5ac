"""Take note of the import of a module."""

from __future__ import annotations

import importlib.abc
import importlib.util


class AfterImport(importlib.abc.MetaPathFinder):
    """Call a function with a module when that has been imported."""

    def __init__(self, functions):
        self.functions = functions

    def find_spec(self, name, path, target=None):
        """Find the module as always, and wrap its loader."""
        function = self.functions.pop(name, None)
        if function is None:
            return None
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            function(module)

        spec.loader.exec_module = exec_module
        return spec
