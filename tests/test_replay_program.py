"""Replay bundles through the program: made in one workspace, replayed in another, in a process of its own."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.metadata import distribution
from pathlib import Path

import pytest

from tests.bundles import edit
from tests.program import TINY, latest, make_workspace, sqnr

STEM = "tiny-small-seeded-x86-static-released-converted-logits"
FAILS = TINY.replace("return _batches(seed + 1)", "raise ValueError(f'nothing in {__file__} for {object()}')")
"""Its error names a folder and an address; neither is the same elsewhere."""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """The workspace in which the bundles were made: accepted as it was with another gain, and then gated."""
    folder = make_workspace(tmp_path_factory.mktemp("made"), tiny=TINY.replace("GAIN = 1.0", "GAIN = 1.5"), fails=FAILS)
    assert sqnr(folder, "run", "-j", "2").returncode == 0
    assert sqnr(folder, "accept", "-m", "tiny", "--because", "first", "--noise-runs", "0").returncode == 0
    make_workspace(folder, tiny=TINY)
    gated = sqnr(folder, "gate", "-j", "2", "--bundle")
    assert gated.returncode == 1, gated.stderr
    assert "bundles, the first: " in gated.stdout
    return folder


@pytest.fixture
def elsewhere(made, tmp_path) -> Path:
    """Another workspace with the same adapters, and in it the bundles, where nobody can write to them."""
    folder = make_workspace(tmp_path / "elsewhere", tiny=TINY, fails=FAILS)
    shutil.copytree(latest(made) / "bundles", folder / "sent")
    return folder


def _read_only(folder: Path) -> None:
    for path in (*folder.rglob("*"), folder):
        path.chmod(0o555 if path.is_dir() else 0o444)


def test_gate_writes_a_bundle_for_each_failing_row_and_no_other(made):
    run = latest(made)
    verdicts = json.loads((run / "verdict.json").read_text())["verdicts"]
    bad = {(v["model"], v["point"]) for v in verdicts if v["outcome"] in ("regressed", "changed", "failed")}
    names = sorted(path.name for path in (run / "bundles").iterdir())
    assert STEM in names
    assert len(names) == len(bad), "one output at each point"
    assert sqnr(made, "check", "--bundle").returncode == 1, "check writes them too"


def test_a_bundle_names_nothing_of_where_it_was_made(made):
    for file in (latest(made) / "bundles").rglob("*.*"):
        text = file.read_text(encoding="utf-8") if file.is_file() else ""
        assert str(made) not in text
        assert str(Path.home()) not in text or str(Path.home()) == "/"


def test_a_bundle_reproduces_to_the_last_bit_in_another_workspace(elsewhere):
    _read_only(elsewhere / "sent")
    done = sqnr(elsewhere, "replay", f"sent/{STEM}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("reproduced to the last bit: ")
    assert len(done.stdout.splitlines()) == 1
    assert not (elsewhere / "reports").exists(), "a replay is no run"


def test_a_failed_row_reproduces_where_its_stage_fails_alike(elsewhere):
    [folder] = [path for path in (elsewhere / "sent").iterdir() if "fails" in path.name and "-converted-" in path.name]
    done = sqnr(elsewhere, "replay", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == (
        "reproduced to the last bit: failed:calibrate: ValueError: nothing in fails.py for <object object at 0x...>\n"
    )


def _older_torchao(folder: Path) -> str:
    """A folder for PYTHONPATH that says torchao 0.17.0 is installed, and has no code."""
    metadata = folder / "torchao-0.17.0.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    version = distribution("torchao").version
    metadata.write_text(f"Metadata-Version: 2.1\nName: torchao\nVersion: 0.17.0\n\nNot {version}.\n")
    return os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])


@pytest.mark.slow
def test_another_torchao_is_named_and_harmless_where_no_bit_moved(elsewhere, tmp_path):
    done = sqnr(elsewhere, "replay", f"sent/{STEM}", PYTHONPATH=_older_torchao(tmp_path / "path"))
    assert done.returncode == 0, done.stdout + done.stderr
    version = distribution("torchao").version
    assert f"different, but harmless: torchao {version} -> 0.17.0" in done.stdout


def test_another_torchao_is_named_first_where_values_moved(elsewhere, tmp_path):
    """The observer is patched as a release might change it: from a folder on the path, before anything is imported."""
    path = _older_torchao(tmp_path / "path")
    (tmp_path / "path" / "sitecustomize.py").write_text(
        "import sys\n\n\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name != 'torchao.quantization.pt2e.observer':\n"
        "            return None\n"
        "        sys.meta_path.remove(self)\n"
        "        import importlib.util\n"
        "        spec = importlib.util.find_spec(name)\n"
        "        run = spec.loader.exec_module\n\n"
        "        def changed(module):\n"
        "            run(module)\n"
        "            own = module.UniformQuantizationObserverBase._calculate_qparams\n\n"
        "            def wider(self, low, high):\n"
        "                return own(self, 2 * low, 2 * high)\n\n"
        "            module.UniformQuantizationObserverBase._calculate_qparams = wider\n\n"
        "        spec.loader.exec_module = changed\n"
        "        return spec\n\n\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    done = sqnr(elsewhere, "replay", f"sent/{STEM}", PYTHONPATH=path)
    assert done.returncode == 1, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("not reproduced: tiny/small/seeded x86-static converted logits: ")
    assert lines[1] == f"- torchao {distribution('torchao').version} -> 0.17.0"
    assert lines[2].startswith("- logits: SQNR ")
    assert any("scale" in line and "upper bound" in line for line in lines[3:])


@pytest.mark.slow
def test_other_data_and_another_adapter_are_told_before_the_values(elsewhere):
    make_workspace(elsewhere, tiny=TINY.replace("return _batches(seed)\n", "return _batches(seed + 7)\n"))
    done = sqnr(elsewhere, "replay", f"sent/{STEM}")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].startswith("- adapter tiny.py: another SHA-256, ")
    assert lines[2] == "- evaluation inputs: batches 1, 2 with other data"
    assert lines[3].startswith("- logits: SQNR ")
    content = json.loads(sqnr(elsewhere, "replay", "--json", f"sent/{STEM}").stdout)
    assert content["reproduced"] is False
    assert {"adapter", "inputs", "output"} <= {item["kind"] for item in content["differences"]}


@pytest.mark.slow
def test_a_comment_in_the_adapter_is_harmless(elsewhere):
    make_workspace(elsewhere, tiny=TINY + "# a comment\n")
    done = sqnr(elsewhere, "replay", f"sent/{STEM}")
    assert done.returncode == 0
    assert "different, but harmless: adapter tiny.py: another SHA-256, " in done.stdout


def _refused(workspace: Path, *args: str, **changes: object) -> str:
    """The one line of a replay that cannot be done, of a bundle with these changes."""
    folder = workspace / "sent" / STEM
    if "row" in changes:  # quantizers.csv would be of another case
        (folder / "quantizers.csv").write_text((folder / "quantizers.csv").read_text().split("\n")[0] + "\n")
        changes["quantizers"] = hashlib.sha256((folder / "quantizers.csv").read_bytes()).hexdigest()
    if changes:
        edit(folder, **changes)
    done = sqnr(workspace, "replay", str(folder), *args)
    assert (done.returncode, done.stdout) == (2, ""), done.stdout + done.stderr
    *before, line = done.stderr.splitlines()
    assert line.startswith("sqnr: ")
    # Until the sizes are known there is one line of progress, with names that are escaped and cut.
    assert len(before) <= 1
    assert all(len(told) < 150 and told.isprintable() for told in before)
    return line


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"model": "tino"}, "no model named 'tino'; did you mean tiny?"),
        ({"model": "../../models/tiny"}, "no model named '../../models/tiny'"),
        ({"flow": "x87-static"}, "no flow named 'x87-static'; did you mean x86-static"),
        ({"variant": "+a-fix"}, "no fix named 'a-fix'"),
        ({"size": "../../../x"}, "no size of model tiny named '../../../x'"),
        ({"weights": "/etc/passwd"}, "no weights of tiny/small named '/etc/passwd'"),
        ({"model": "[/red]tiny"}, "no model named '[/red]tiny'"),
        ({"model": "a\n::error::\x1b[31mx"}, "no model named 'a\\n::error::\\x1b[31mx'"),
        ({"model": "m" * 300_000}, "model has 300000 characters, at most 500 are read"),
        ({"size": "[/b]"}, "no size of model tiny named '[/b]'"),
        ({"size": "s" * 500}, f"no size of model tiny named '{'s' * 500}'"),
    ],
)
def test_what_this_workspace_lacks_is_one_line_and_nothing_is_built_for_it(elsewhere, row, said):
    assert said in _refused(elsewhere, row=row)


def test_a_bundle_of_a_later_version_and_no_bundle_are_one_line(elsewhere):
    assert "schema 9, this version reads 1" in _refused(elsewhere, schema=9)
    (elsewhere / "sent" / STEM / "bundle.json").write_text("{")
    assert "bundle.json: damaged" in _refused(elsewhere)


@pytest.mark.slow
def test_a_checkpoint_must_be_given_and_nothing_else_may_be(elsewhere):
    assert "from no file" in _refused(elsewhere, "--weights", "models/tiny.py")
    record = {"checkpoint": {"name": "mine.pt", "sha256": "a" * 64}, "row": {"weights": "file:mine.pt"}}
    assert "from mine.pt, which is not part of it: give its path with --weights" in _refused(elsewhere, **record)


def test_nothing_in_a_bundle_is_run(elsewhere):
    """Neither adapters and modules that lie in it, nor the minimised graph unless it is asked for."""
    folder = elsewhere / "sent" / STEM
    trap = "open('trapped', 'w')\nraise SystemExit(3)\n"
    for name in ("bundle.py", "conftest.py", "sitecustomize.py", "torch.py", "models/tiny.py", "minimal/bad.pt2"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(trap)
    done = sqnr(elsewhere, "replay", str(folder))
    assert done.returncode == 0, done.stderr
    assert "minimal/ was not loaded: --minimal runs it, where you trust the bundle" in done.stdout
    (folder / "pyproject.toml").write_text("[tool.sqnr]\n")
    program = Path(sys.executable).with_name("sqnr")
    inside = subprocess.run([program, "replay", "."], cwd=folder, capture_output=True, text=True, check=False)
    assert inside.returncode == 2
    assert "the adapters lie in the bundle itself" in inside.stderr
    assert not list(elsewhere.rglob("trapped"))


@pytest.mark.slow
def test_a_minimised_graph_that_is_damaged_or_absent_is_said(elsewhere):
    assert "holds no minimal/" in _refused(elsewhere, "--minimal")
    (elsewhere / "sent" / STEM / "minimal").mkdir()
    done = sqnr(elsewhere, "replay", "--minimal", f"sent/{STEM}")
    assert done.returncode == 1
    assert "- minimised graph: TableError: " in done.stdout


def test_ctrl_c_ends_a_replay_and_leaves_nothing_behind(elsewhere, tmp_path):
    make_workspace(
        elsewhere, tiny=TINY.replace("    with torch.random", "    import time; time.sleep(60)\n    with torch.random")
    )
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", "replay", f"sent/{STEM}"],
        cwd=elsewhere,
        env={**os.environ, "TMPDIR": str(scratch)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not list(scratch.glob("sqnr-replay-*/part.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "sqnr: interrupted; nothing was compared" in stderr
    assert list(scratch.glob("sqnr-replay-*")) == []
