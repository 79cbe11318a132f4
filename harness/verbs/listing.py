"""What can be asked for: models, flows, fixes, suites, and the installed upstream releases."""

from __future__ import annotations

from typing import Any

from rich.markup import escape
from rich.table import Table

from harness import environment, fixes, flows
from harness.execute import Options, measuring_processes
from harness.report.terminal import console
from harness.workspace import Workspace


def inventory(workspace: Workspace) -> dict[str, Any]:
    """Everything `sqnr list` shows, as plain data."""
    with measuring_processes(Options(workers=1)) as workers:
        sizes = workers.sizes(workspace)
    return {
        "models": {
            name: None if known is None else {size: list(one.weights) for size, one in known.items()}
            for name, known in sizes.items()
        },
        "flows": flows.names(),
        "fixes": {fix.name: fix.link for fix in fixes.installed()},
        "suites": {name: suite.model_dump(mode="json") for name, suite in workspace.settings.all_suites().items()},
        "stack": environment.stack_versions(),
        "platform": environment.platform_name(),
        "folders": {
            "models": str(workspace.models),
            "baselines": str(workspace.platform_baselines),
            "reports": str(workspace.reports),
        },
    }


def print_inventory(found: dict[str, Any]) -> None:
    """The inventory as tables."""
    models = Table("model", "size: kinds of weights (default first)", title="Models", title_justify="left")
    for name, sizes in found["models"].items():
        text = "cannot be imported; `sqnr run -m` says why" if sizes is None else "; ".join(
            f"{size}: {', '.join(kinds)}" for size, kinds in sizes.items()
        )  # fmt: skip
        models.add_row(escape(name), escape(text))
    suites = Table("suite", "size", "flows", "lowered too", "includes", title="Suites", title_justify="left")
    for name, suite in found["suites"].items():
        flows, lowered, includes = (", ".join(suite[field]) for field in ("flows", "lowered", "includes"))
        suites.add_row(*map(escape, (name, suite["size"], flows, lowered, includes)))
    upstream = Table("package", "version", title="Installed releases", title_justify="left")
    for package, version in found["stack"].items():
        upstream.add_row(escape(package), escape(version))
    out = console()
    for table in (models, suites, upstream):
        out.print(table)
    out.print(f"Flows: {escape(', '.join(found['flows']))}", highlight=False)
    out.print(f"Fixes: {escape(', '.join(found['fixes'])) or 'none installed'}", highlight=False)
    for name, folder in found["folders"].items():
        out.print(f"{name}: {escape(folder)}", highlight=False, soft_wrap=True)
