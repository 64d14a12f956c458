"""A kind of contract that import-linter lacks: these modules import what is named, and nothing else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from importlinter import Contract, ContractCheck, fields, output
from importlinter.domain.helpers import module_expressions_to_modules

if TYPE_CHECKING:
    from grimp import ImportGraph

__all__ = ["AllowListContract"]


class AllowListContract(Contract):
    """The importers, each a package, import only themselves, the standard library, and the allowed packages.

    An entry that nothing needs breaks the contract too, so that the list stays as short as it can be.
    """

    type_name = "allow_list"

    importers: Any = fields.ListField(subfield=fields.ModuleExpressionField())
    allowed: Any = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Look at each direct import of each importer."""
        importers = {module.name for module in module_expressions_to_modules(graph, self.importers, as_packages=True)}
        refused: list[tuple[str, str]] = []
        needed: set[str] = set()
        for importer in sorted(importers):
            for imported in sorted(graph.find_modules_directly_imported_by(importer)):
                if imported in importers or imported.partition(".")[0] in sys.stdlib_module_names:
                    continue
                entries = {entry for entry in self.allowed if imported == entry or imported.startswith(f"{entry}.")}
                needed |= entries
                if not entries:
                    refused.append((importer, imported))
        idle = sorted(set(self.allowed) - needed)
        return ContractCheck(kept=not refused and not idle, metadata={"refused": refused, "idle": idle})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Say which imports aren't on the list, and which entries nothing needs."""
        for importer, imported in check.metadata["refused"]:
            output.print_error(f"- {importer} -> {imported}", bold=False)
        for entry in check.metadata["idle"]:
            output.print_error(f"- {entry} is allowed, and nothing imports it", bold=False)
        output.new_line()
