"""The program as people use it: whole life cycles through the command line, each verb in a process of its own."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.program import SETTINGS, TINY, ends, latest, make_workspace, sqnr, start, verdict


def test_life_cycle_missing_accept_ok_drift_fails_accept_ok(tmp_path):
    folder = make_workspace(tmp_path, tiny=TINY)

    first = sqnr(folder, "gate", "-j", "1")
    assert first.returncode == 4, first.stderr
    assert "no baselines for this platform" in first.stdout
    assert "sqnr accept" in first.stdout
    assert "there is no baseline to judge by" in (latest(folder) / "report.md").read_text(encoding="utf-8")
    assert (verdict(folder)["exit_code"], verdict(folder)["outcome"]) == (4, "incomplete")

    accepted = sqnr(folder, "accept", "--because", "first baselines", "-j", "2")
    assert accepted.returncode == 0, accepted.stderr
    assert "tiny/small/seeded x86-static converted logits: - -> " in accepted.stdout
    baselines = {path: path.read_bytes() for path in (folder / "baselines").rglob("*.csv")}
    row = next(line for line in b"".join(baselines.values()).decode().splitlines() if ",converted,logits," in line)
    assert row.startswith("tiny,small,seeded,x86-static,released,converted,logits,measured,")
    assert 0 <= float(row.split(",")[14]) < 1, "accept measures the noise floor"

    assert sqnr(folder, "gate", "-j", "1").returncode == 0
    assert verdict(folder)["counts"]["ok"] > 3

    make_workspace(folder, tiny=TINY.replace("GAIN = 1.0", "GAIN = 1.5"))
    drifted = sqnr(folder, "gate", "-j", "1")
    assert drifted.returncode == 1
    assert "changed tiny/small/seeded x86-static" in drifted.stdout
    assert 'If intended: sqnr accept -m tiny -f x86-static --because "..."' in drifted.stdout
    assert {path: path.read_bytes() for path in baselines} == baselines, "gate never writes a baseline"

    again = sqnr(folder, "accept", "-m", "tiny", "-f", "x86-static", "--because", "gain 1.5", "--noise-runs", "0")
    assert again.returncode == 0, again.stderr
    assert sqnr(folder, "check").returncode == 0
    assert sqnr(folder, "gate", "-j", "1").returncode == 0


BROKEN = {
    "raises": TINY.replace("    with torch.random", "    raise RuntimeError('no such weights')\n    with torch.random"),
    "arity": TINY.replace('("logits",)', '("logits", "boxes")'),
    "nan": TINY.replace("model[2].weight.data *= GAIN", "model[2].weight.data[0, 0] = float('nan')"),
    "zero": TINY.replace("model[2].weight.data *= GAIN", "model[2].weight.data *= 0; model[2].bias.data *= 0"),
    "syntax": "def build(:\n",
    "lacks": "SIZES = {}\n",
    "training": TINY.replace("nn.ReLU()", "nn.Dropout()").replace(").eval()", ").eval(); model[1].train()"),
    "stateful": TINY.replace("nn.ReLU()", "Counter()").replace(
        "def build",
        "class Counter(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.register_buffer('calls', torch.zeros(1))\n\n"
        "    def forward(self, x):\n"
        "        self.calls += 1\n"
        "        return torch.relu(x)\n\n\n"
        "def build",
    ),
    "twins": TINY.replace('("logits",)', '("logits", "logits")'),
    "foreign": TINY.replace("SIZES = {", "class S(Size):\n    pass\n\n\nSIZES = {").replace(": Size(", ": S("),
    "dies": TINY.replace("    with torch.random", "    import os; os._exit(9)\n    with torch.random"),
    "good": TINY,
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """One run over adapters that break the contract, each in its own way, beside a good one."""
    folder = make_workspace(tmp_path_factory.mktemp("broken"), **BROKEN)
    sqnr(folder, "run")
    sqnr(folder, "report")
    rows = (latest(folder) / "outputs.csv").read_text().splitlines()[1:]
    return folder, {name: [row for row in rows if row.startswith(f"{name},")] for name in BROKEN}


def test_a_good_model_is_measured_whatever_its_neighbours_do(broken):
    assert [row.split(",")[7] for row in broken[1]["good"]] == ["measured", "exact", "exact"]


@pytest.mark.parametrize(
    ("name", "status", "error"),
    [
        ("raises", "failed:load", "RuntimeError: no such weights"),
        ("arity", "failed:load", "declares 2 outputs (logits, boxes) for size 'small', but the model returned 1"),
        ("syntax", "failed:load", "cannot be imported: SyntaxError"),
        ("training", "failed:load", "must return eval mode, but 1 is in training"),
        ("stateful", "failed:load", "the model changes its own parameters or buffers when it runs"),
        ("twins", "failed:load", "SIZES['small'].outputs must be distinct names, not ('logits', 'logits')"),
        ("dies", "failed:load", "the measuring process died (exit code 9)"),
    ],
)
def test_an_adapter_that_breaks_becomes_failed_rows_with_the_reason(broken, name, status, error):
    rows = broken[1][name]
    assert rows
    assert all(f",{status}," in row and error in row for row in rows), rows


def test_a_class_of_the_adapters_own_in_sizes_does_not_stop_the_others(broken):
    assert [row.split(",")[7] for row in broken[1]["foreign"]] == ["measured", "exact", "exact"]


def test_an_adapter_without_the_planned_size_is_not_planned(broken):
    """`SIZES = {}` has no `small`, and no build either: it cannot be imported as an adapter, so its rows say that."""
    assert broken[1]["lacks"]
    assert all("lacks build" in row for row in broken[1]["lacks"])


def test_a_nan_in_the_reference_always_fails(broken):
    """At the control point too; upstream's own convert cannot choose a scale for NaN and raises."""
    statuses = {row.split(",")[5]: row.split(",")[7] for row in broken[1]["nan"]}
    assert (statuses["float"], statuses["prepared"]) == ("nonfinite_reference", "nonfinite_reference")


def test_an_all_zero_model_has_no_signal_and_no_noise(broken):
    rows = [row.split(",") for row in broken[1]["zero"]]
    assert {(row[7], row[8], row[12]) for row in rows} == {("exact", "160.0", "0.0")}


def test_a_failed_run_is_not_accepted_unless_rows_are_named(broken):
    folder, _ = broken
    refused = sqnr(folder, "accept", "--because", "x", "--noise-runs", "0")
    assert refused.returncode == 2
    assert "this fails whatever the baseline says" in refused.stderr or "failed:load" in refused.stderr
    named = sqnr(folder, "accept", "-m", "good", "--because", "x", "--noise-runs", "0")
    assert named.returncode == 0, named.stderr
    assert sorted(path.name for path in (folder / "baselines").rglob("*.csv")) == [
        "good.outputs.csv",
        "good.quantizers.csv",
    ]


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        (("run", "-m", "tinny"), 2, "no model named 'tinny'; did you mean tiny? (known: tiny)"),
        (("run", "-f", "x86-statik"), 2, "no flow named 'x86-statik'; did you mean x86-static"),
        (("run", "--suite", "nightlie"), 2, "no suite named 'nightlie'; did you mean nightly"),
        (("run", "--weights", "/no/such.pth"), 2, "no such file or folder, nor a kind of weights (seeded)"),
        (("gate", "-f", "x86-dynamic"), 5, "nothing to measure: no case of suite gate fits -f x86-dynamic"),
        (("check", "20200101-000000-gate"), 2, "no run '20200101-000000-gate'"),
        (("report",), 2, "start with `sqnr run`"),
        (("accept",), 2, "Missing option '--because'"),
        (("frobnicate",), 2, "No such command 'frobnicate'"),
    ],
)
def test_a_wrong_word_is_one_clear_line_and_the_right_code(tmp_path, args, code, message):
    found = sqnr(make_workspace(tmp_path, tiny=TINY), *args)
    assert (found.returncode, message in found.stderr) == (code, True), found.stderr
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("[tool.sqnr.tolerance]\nsqnr_drop_db = -1.0", "tolerance.sqnr_drop_db"),
        ("[tool.sqnr.tolerance]\nsqnr_drop_db = nan", "tolerance.sqnr_drop_db"),
        ("[[tool.sqnr.override]]\nmodel = 'tiny'\ntolerance = {sqnr_drop_db = 1.0}", "override.0.reason"),
        ("this is no toml", "cannot be read"),
    ],
)
def test_a_wrong_setting_ends_every_verb_with_the_key(tmp_path, settings, message):
    found = sqnr(make_workspace(tmp_path, settings, tiny=TINY), "check")
    assert (found.returncode, message in found.stderr) == (2, True), found.stderr


def test_an_unwritable_reports_folder_is_one_line(tmp_path):
    folder = make_workspace(tmp_path, tiny=TINY)
    (folder / "reports").write_text("a file where a folder should be")
    found = sqnr(folder, "run", "-j", "1")
    assert found.returncode == 2
    assert f"{folder / 'reports'}: cannot be written" in found.stderr


SLOW = TINY.replace("def evaluation", "import time\n\n\ndef evaluation").replace(
    "    return _batches(seed)\n", "    time.sleep(600)\n    return _batches(seed)\n"
)


def test_ctrl_c_keeps_what_was_measured_and_ends_with_130(tmp_path):
    """As a terminal does it: the signal goes to the whole process group."""
    folder = make_workspace(tmp_path, a_quick=TINY, b_slow=SLOW)
    program = start(folder, "run", "-j", "1")
    deadline = time.monotonic() + 120
    while not any('"result"' in part.read_text() for part in (folder / "reports").glob("*/parts/*a_quick*")):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    os.killpg(program.pid, signal.SIGINT)
    _, errors = program.communicate(timeout=300)
    assert program.returncode == 130, errors
    assert "what was measured (3 output rows) is kept in" in errors
    rows = (latest(folder) / "outputs.csv").read_text().splitlines()[1:]
    assert [row.split(",")[0] for row in rows] == ["a_quick"] * 3
    assert ends(program.pid), "a process of the run is still there"

    refused = sqnr(folder, "accept", "--because", "x", "--noise-runs", "0")
    assert (refused.returncode, "is interrupted, not complete" in refused.stderr) == (2, True)


def test_a_model_past_its_time_limit_is_rows_and_the_others_go_on(tmp_path):
    folder = make_workspace(tmp_path, a_slow=SLOW, b_quick=TINY)
    found = sqnr(folder, "run", "-j", "2", "--timeout", "40")
    assert found.returncode == 0, found.stderr
    rows = [row.split(",") for row in (latest(folder) / "outputs.csv").read_text().splitlines()[1:]]
    assert {(row[0], row[7]) for row in rows if row[0] == "a_slow"} == {("a_slow", "failed:load")}
    assert all("timed out after 40 s" in row[-1] for row in rows if row[0] == "a_slow")
    assert {row[7] for row in rows if row[0] == "b_quick"} == {"measured", "exact"}


def test_two_runs_at_once_get_two_folders_and_the_same_bytes(tmp_path):
    folder = make_workspace(tmp_path, tiny=TINY)
    programs = [start(folder, "run", "-j", "1") for _ in range(2)]
    assert [program.wait(timeout=200) for program in programs] == [0, 0]
    runs = sorted(path.parent for path in (folder / "reports").glob("*/run.json"))
    assert len(runs) == 2
    for name in ("outputs.csv", "quantizers.csv"):
        assert (runs[0] / name).read_bytes() == (runs[1] / name).read_bytes()


POLLUTING = TINY.replace("def build", "torch.set_default_dtype(torch.float64)\n\n\ndef build").replace(
    "    model[2]", "    torch.set_num_threads(2)\n    torch.use_deterministic_algorithms(True)\n    model[2]"
)


def test_workers_and_case_order_do_not_change_a_byte(tmp_path):
    """One process at a time, two, and another order; one of the models does what it likes to torch's global state."""
    settings = SETTINGS.replace('["x86-static"]', '["x86-static", "x86-dynamic", "arm-static-s8s8f32-per-tensor"]')
    folder = make_workspace(tmp_path, settings, a=TINY, b=POLLUTING)
    measured = []
    for args in (("-j", "1"), ("-j", "2"), ("-j", "1", "--shuffle", "7")):
        assert sqnr(folder, "run", *args).returncode == 0
        measured.append([(latest(folder) / name).read_bytes() for name in ("outputs.csv", "quantizers.csv")])
    assert measured[0] == measured[1] == measured[2]


def test_an_unreadable_baseline_is_code_2_with_file_and_line_and_a_verdict(tmp_path):
    folder = make_workspace(tmp_path, tiny=TINY)
    assert sqnr(folder, "run", "-j", "1").returncode == 0
    assert sqnr(folder, "accept", "--because", "x", "--noise-runs", "0").returncode == 0
    path = next((folder / "baselines").rglob("*.outputs.csv"))
    path.write_text(path.read_text() + "<<<<<<< HEAD\n")
    found = sqnr(folder, "check")
    assert (found.returncode, f"{path}:5: merge conflict marker" in found.stderr) == (2, True), found.stderr
    assert verdict(folder)["exit_code"] == 2


def test_compare_judges_one_run_by_another_without_a_baseline(tmp_path):
    folder = make_workspace(tmp_path, tiny=TINY)
    sqnr(folder, "run", "-j", "1")
    base = latest(folder).name
    time.sleep(1.1)
    make_workspace(folder, tiny=TINY.replace("GAIN = 1.0", "GAIN = 1.5"))
    sqnr(folder, "run", "-j", "1")
    head = latest(folder).name
    assert sqnr(folder, "compare", base, base).returncode == 0
    changed = sqnr(folder, "compare", base, head)
    assert changed.returncode == 1
    assert "2:linear.weight" in changed.stdout
