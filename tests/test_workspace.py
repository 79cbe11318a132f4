"""Which folders a verb works on, and which file an adapter's name means."""

from __future__ import annotations

import sys

import pytest

from harness.errors import AdapterError, ConfigError, UsageError
from harness.workspace import find_workspace, load_module

ADAPTER = """
from ._helper import ANSWER
from harness.adapter import Size

SIZES = {"small": Size(("seeded",), ("y",))}
build = calibration = evaluation = lambda *_: ANSWER
"""


def _workspace(folder, answer=42):
    (folder / "models").mkdir(parents=True)
    (folder / "pyproject.toml").write_text("[tool.sqnr]\n")
    (folder / "models" / "mine.py").write_text(ADAPTER)
    (folder / "models" / "_helper.py").write_text(f"ANSWER = {answer}\n")
    return folder


def test_the_nearest_parent_with_the_table_is_the_workspace(tmp_path):
    outer = _workspace(tmp_path / "outer")
    inner = outer / "library"
    (inner / "deep").mkdir(parents=True)
    (inner / "pyproject.toml").write_text("[tool.other]\n")
    assert find_workspace(inner / "deep").models == outer / "models"
    assert find_workspace(inner / "deep").reports == outer / "reports"


def test_folders_can_be_named_in_the_table(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.sqnr]\nmodels = "nets"\nreports = "out/reports"\n')
    workspace = find_workspace(tmp_path)
    assert (workspace.models, workspace.reports) == (tmp_path / "nets", tmp_path / "out/reports")


def test_without_a_table_the_built_in_workspace_reports_here_and_takes_no_baseline(tmp_path):
    workspace = find_workspace(tmp_path)
    assert workspace.builtin
    assert workspace.reports == tmp_path / "reports"
    assert {"bert", "convnext", "resnet", "slices", "vit"} <= set(workspace.model_names())
    with pytest.raises(UsageError, match="built-in workspace"):
        workspace.check_writable()


def test_a_pyproject_that_is_no_toml_names_the_file(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool\n")
    with pytest.raises(ConfigError, match=r"pyproject.toml: cannot be read"):
        find_workspace(tmp_path)


def test_an_adapter_reaches_its_helpers_and_helpers_are_no_models(tmp_path):
    workspace = find_workspace(_workspace(tmp_path / "w"))
    assert "_helper" not in workspace.model_names()
    assert workspace.load_adapter("mine").build("small", "seeded", 0) == 42


def test_two_workspaces_with_the_same_names_do_not_meet(tmp_path):
    one = find_workspace(_workspace(tmp_path / "one", 1))
    two = find_workspace(_workspace(tmp_path / "two", 2))
    assert [w.load_adapter("mine").build("small", "seeded", 0) for w in (one, two, one)] == [1, 2, 1]


def test_a_package_called_models_is_never_meant(tmp_path, monkeypatch):
    """Neither does ours shadow the user's, nor theirs ours."""
    theirs = tmp_path / "path" / "models"
    theirs.mkdir(parents=True)
    (theirs / "__init__.py").write_text("")
    (theirs / "mine.py").write_text("raise RuntimeError('the wrong models package')\n")
    monkeypatch.syspath_prepend(str(theirs.parent))
    workspace = find_workspace(_workspace(tmp_path / "w"))
    assert workspace.load_adapter("mine").build("small", "seeded", 0) == 42
    assert not any(name == "models" or name.startswith("models.") for name in sys.modules)


def test_an_adapter_that_cannot_be_imported_says_where_and_why(tmp_path):
    folder = _workspace(tmp_path / "w")
    (folder / "models" / "broken.py").write_text("import no_such_package\n")
    with pytest.raises(AdapterError, match=r"broken.py: cannot be imported: ModuleNotFoundError.*no_such_package"):
        find_workspace(folder).load_adapter("broken")


@pytest.mark.parametrize("part", ["SIZES", "build", "calibration", "evaluation"])
def test_an_adapter_that_lacks_part_of_the_contract_is_told_which(tmp_path, part):
    folder = _workspace(tmp_path / "w")
    (folder / "models" / "mine.py").write_text(ADAPTER + f"\ndel {part}\n")
    with pytest.raises(AdapterError, match=f"mine.py: lacks {part}"):
        find_workspace(folder).load_adapter("mine")


def test_an_unknown_model_lists_near_matches_and_all(tmp_path):
    with pytest.raises(UsageError, match=r"no model named 'mime'; did you mean mine\? \(known: mine\)"):
        find_workspace(_workspace(tmp_path / "w")).load_adapter("mime")


def test_a_folder_without_init_is_a_package_all_the_same(tmp_path):
    (tmp_path / "alone.py").write_text("VALUE = 7\n")
    assert load_module(tmp_path, "alone").VALUE == 7


@pytest.mark.parametrize("given", ["0", "-1", "'2'", "True", "float('nan')", "float('inf')"])
@pytest.mark.parametrize("field", ["cost", "memory"])
def test_cost_and_memory_are_positive_numbers(tmp_path, field, given):
    folder = _workspace(tmp_path)
    (folder / "models" / "mine.py").write_text(ADAPTER.replace('("y",))', f'("y",), {field}={given})'))
    with pytest.raises(AdapterError, match=rf"mine\.py: SIZES\['small'\]\.{field} must be a positive number, not "):
        find_workspace(folder).load_adapter("mine")
