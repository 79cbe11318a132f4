"""`sqnr init`: a folder becomes a workspace whose gate can be passed, and nothing that was there is replaced."""

from __future__ import annotations

import tomllib

import pytest

from harness.errors import UsageError
from harness.verbs.starting import start_workspace
from harness.workspace import find_workspace
from tests.program import sqnr


def test_an_empty_folder_becomes_a_workspace_missing_accept_ok(tmp_path):
    begun = sqnr(tmp_path, "init")
    assert begun.returncode == 0, begun.stderr
    assert begun.stdout.splitlines()[-1] == 'next: sqnr run, sqnr accept --because "first baseline", sqnr gate'
    assert sqnr(tmp_path, "gate").returncode == 4
    accepted = sqnr(tmp_path, "accept", "--because", "first baseline", "--noise-runs", "0")
    assert accepted.returncode == 0, accepted.stderr
    passed = sqnr(tmp_path, "gate")
    assert passed.returncode == 0, passed.stderr
    assert "every row is as accepted" in passed.stdout


def test_settings_are_added_to_a_project_and_its_models_stay(tmp_path):
    project = '[project]\nname = "mine"\n\n[tool.ruff]\nline-length = 100'
    (tmp_path / "pyproject.toml").write_text(project)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "mine.py").write_text("")
    written = start_workspace(tmp_path, "first")
    assert [path.relative_to(tmp_path).as_posix() for path in written] == ["pyproject.toml", "reports/.gitignore"]
    text = (tmp_path / "pyproject.toml").read_text()
    assert text.startswith(project + "\n\n[tool.sqnr]\n")
    assert tomllib.loads(text)["tool"]["sqnr"]["suites"]["gate"]["flows"] == ["x86-*"]
    assert find_workspace(tmp_path).model_names() == ["mine"]


def test_a_folder_is_made_and_the_model_named(tmp_path):
    start_workspace(tmp_path / "new" / "folder", "resnet")
    assert find_workspace(tmp_path / "new" / "folder").model_names() == ["resnet"]


@pytest.mark.parametrize(
    ("project", "model", "error"),
    [
        ("[tool.sqnr]\n", "first", r"has a \[tool.sqnr\] already"),
        ("[tool\n", "first", "cannot be read: "),
        ("tool = 1\n", "first", "tool is no table"),
        ("", "two words", "an adapter is a Python module"),
        ("", "_helper", "an adapter is a Python module"),
        ("", "../up", "an adapter is a Python module"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line_and_nothing_is_written(tmp_path, project, model, error):
    (tmp_path / "pyproject.toml").write_text(project)
    with pytest.raises(UsageError, match=error) as refused:
        start_workspace(tmp_path, model)
    assert "\n" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["pyproject.toml"]
    assert (tmp_path / "pyproject.toml").read_text() == project


def test_a_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    refused = sqnr(tmp_path, "init", "file")
    assert (refused.returncode, "cannot be written" in refused.stderr) == (2, True)
