"""Replay bundles as files: all values exact, nothing that names a machine, one clear line for what is damaged."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from harness import bundle
from harness.cli import cli
from harness.environment import ISAS
from harness.errors import TableError, UsageError
from harness.judge import judge_runs
from harness.places import without_places
from harness.records import OutputRow
from harness.verbs.bundling import failing
from tests.bundles import FACTS, edit, written
from tests.rows import no_number, output_row, quantizer_row, run_of, settings_from, workspace_at

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(sqnr_db=FINITE, cosine=FINITE, largest=FINITE, lo=FINITE)
def test_a_bundle_gives_back_every_bit_of_its_rows(tmp_path_factory, sqnr_db, cosine, largest, lo):
    folder = tmp_path_factory.mktemp("bundle")
    row = output_row(sqnr_db=sqnr_db, cosine=cosine, max_abs_err=largest)
    quantizer = quantizer_row(lo=lo, hi=0.1 + 0.2)
    found = written(folder, row, quantizer)
    assert repr((found.row, found.quantizers)) == repr((row, (quantizer,)))


def test_a_bundle_holds_what_its_row_was_measured_with(tmp_path):
    record = written(tmp_path, because=("SQNR 30 dB, baseline 40 dB",)).record
    assert (record.seed, record.weights, record.because) == (0, "1" * 64, ("SQNR 30 dB, baseline 40 dB",))
    assert record.inputs == {"calibration": ("2" * 64,), "evaluation": ("1" * 64, "2" * 64, "3" * 64)}
    assert record.adapter == FACTS.adapter
    assert record.environment.model_dump() == FACTS.environment


def test_only_quantizers_of_the_rows_own_graph_are_kept(tmp_path):
    rows = quantizer_row(), quantizer_row(point="lowered"), quantizer_row(variant="+fix"), quantizer_row(quantizer="b")
    assert [row.quantizer for row in written(tmp_path, None, *rows).quantizers] == ["b", rows[0].quantizer]


@pytest.mark.parametrize(
    ("changes", "row", "words"),
    [
        ({}, {}, []),
        ({"excluded": ("a b", "c*")}, {}, ["--exclude", "a b", "--exclude", "c*"]),
        ({}, {"point": "lowered"}, ["--lower"]),
        ({"environment": {"pins": ISAS["avx2-vnni"]}}, {"point": "lowered"}, ["--lower", "--isa", "avx2-vnni"]),
        ({"environment": {"pins": {"ATEN_CPU_CAPABILITY": ""}}}, {}, ["--no-pin"]),
        (
            {
                "environment": {
                    "pins": {
                        "ATEN_CPU_CAPABILITY": "avx512",
                        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE",
                        "MKL_CBWR": "AVX512",
                    }
                }
            },
            {},
            ["--isa", "avx512"],
        ),
    ],
)
def test_the_command_is_one_that_run_takes(tmp_path, changes, row, words):
    command = shlex.split(written(tmp_path, output_row(**row), **changes).record.command)
    start = "sqnr run -m resnet -f x86-static --variant released --size small --weights trained"
    assert command == [*start.split(), *words]
    assert "No such option" not in CliRunner().invoke(cli, [*command[1:], "--help"]).output


def test_a_checkpoint_is_told_by_its_name_and_hash_and_not_by_its_folder(tmp_path):
    checkpoint = tmp_path / "private" / "mine.pt"
    checkpoint.parent.mkdir()
    checkpoint.write_bytes(b"abc")
    row = output_row(weights="file:mine.pt")
    record = written(tmp_path / "b", row, quantizer_row(weights="file:mine.pt"), weights_source=str(checkpoint)).record
    assert record.checkpoint is not None
    # The example of FIPS 180-2, appendix B.1.
    fips = "ba7816bf 8f01cfea 414140de 5dae2223 b00361a3 96177a9c b410ff61 f20015ad".replace(" ", "")
    assert (record.checkpoint.name, record.checkpoint.sha256) == ("mine.pt", fips)
    assert record.command.endswith("--weights mine.pt")
    assert "private" not in _all_text(tmp_path / "b")


def _all_text(folder: Path) -> str:
    return "".join(file.read_text(encoding="utf-8") for file in folder.iterdir())


def test_nothing_in_a_bundle_names_a_host_a_user_or_a_folder(tmp_path):
    where = f"{tmp_path}/models/resnet.py"
    error = f"AdapterError: {where}: cannot be imported: /home/annabel/lib/torch.py at 0x7f12ab34cd56"
    told = dataclasses.replace(FACTS, environment={**FACTS.environment, "host": "build-7", "user": "annabel"})
    bundle.write(tmp_path / "b", no_number("failed:load", error=error), [], told, [error])
    text = _all_text(tmp_path / "b")
    assert str(tmp_path) not in text
    assert not re.search(r"annabel|build-7|/home|/tmp|0x7f", text)
    assert bundle.read(tmp_path / "b").row.error == ("AdapterError: resnet.py: cannot be imported: torch.py at 0x...")


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ("No such file: '/home/ann/ws/x.pt'", "No such file: 'x.pt'"),
        ("~/ws/x.pt is gone", "x.pt is gone"),
        ("C:\\Users\\ann\\x.pt is gone", "x.pt is gone"),
        ("<f at 0x7f12ab34cd56>", "<f at 0x...>"),
        ("see https://github.com/pytorch/ao/issues/3", "see https://github.com/pytorch/ao/issues/3"),
        ("int8/uint8, a / b, 1/2, '\\n', models/x.py, 0x10", "int8/uint8, a / b, 1/2, '\\n', models/x.py, 0x10"),
    ],
)
def test_an_error_loses_its_folders_and_addresses_and_nothing_else(text, without):
    assert without_places(text) == without


def test_a_readme_says_what_to_do_and_lets_no_name_be_markup(tmp_path):
    written(tmp_path, output_row(output="a|b<img>@someone\n# x"), because=("![](http://x)",))
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    assert "sqnr replay FOLDER" in text
    assert "30.00 dB" in text
    assert "<img>" not in text
    assert "\n# x" not in text
    assert "![](" not in text
    assert "@someone" not in text


def _error(folder: Path) -> str:
    with pytest.raises(TableError) as raised:
        bundle.read(folder)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema": 2}, "schema 2, this version reads 1"),
        ({"schema": "1"}, "schema: input should be a valid integer"),
        ({"schema": True}, "schema: input should be a valid integer"),
        ({"schema": 1.0}, "schema: input should be a valid integer"),
        ({"seed": "0"}, "seed: input should be a valid integer"),
        ({"seed": True}, "seed: input should be a valid integer"),
        ({"surprise": 1}, "surprise: extra inputs are not permitted"),
        ({"weights": "../../etc"}, "weights: string should match"),
        ({"environment": {"pins": {"LD_PRELOAD": "/tmp/x.so"}}}, "environment.pins.LD_PRELOAD: string should match"),
        ({"inputs": {"test": []}}, "inputs.test"),
        ({"row": {"sqnr_db": float("nan")}}, "sqnr_db is nan"),
        ({"row": {"sqnr_db": "30"}}, "row.sqnr_db: input should be a valid number"),
        ({"row": {"status": "fine"}}, "no output has status 'fine'"),
        ({"row": {"point": "edge"}}, "at point 'edge'"),
        ({"row": {"speed": 1}}, "speed is unknown"),
        ({"quantizers": "0" * 64}, "quantizers.csv: is not the file that"),
        ({"row": {"flow": "xnnpack"}}, "quantizers.csv: holds rows of another case"),
    ],
)
def test_a_damaged_bundle_is_told_in_a_line_that_names_the_field(tmp_path, changes, said):
    written(tmp_path)
    edit(tmp_path, **changes)
    assert said in _error(tmp_path)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"null", b"[" * 100_000, b'{"schema": 1}'])
def test_what_is_no_bundle_is_told_in_a_line(tmp_path, content):
    (tmp_path / "bundle.json").write_bytes(content)
    assert "bundle.json: damaged" in _error(tmp_path)


def test_a_column_that_is_missing_is_not_taken_for_none(tmp_path):
    written(tmp_path)
    content = json.loads((tmp_path / "bundle.json").read_text())
    del content["row"]["cosine"]
    (tmp_path / "bundle.json").write_text(json.dumps(content))
    assert "cosine is missing" in _error(tmp_path)


def test_a_folder_without_a_bundle_and_one_without_quantizers_are_told(tmp_path):
    assert f"is {tmp_path} a replay bundle?" in _error(tmp_path)
    written(tmp_path)
    (tmp_path / "quantizers.csv").unlink()
    assert "quantizers.csv: cannot be read" in _error(tmp_path)


def test_a_place_that_cannot_be_written_is_a_user_error(tmp_path):
    (tmp_path / "b").write_text("a file")
    with pytest.raises(UsageError, match="cannot be written"):
        written(tmp_path / "b")


def _failing(tmp_path: Path, base: list, head: list, **settings: object) -> list[tuple[str, str, int]]:
    """(folder, output, number of reasons) of each bundle that judging `head` by `base` asks for."""
    workspace = workspace_at(tmp_path, settings_from(**settings))
    old, new = run_of(tmp_path / "old", *base), run_of(tmp_path / "new", *head)
    found = failing(new, judge_runs(workspace, base=old, head=new))
    return [(folder.relative_to(new.folder).as_posix(), row.output, len(because)) for folder, row, because in found]


def _pair(**changes: object) -> tuple[OutputRow, OutputRow]:
    return output_row(), output_row(**changes)


def test_each_failing_output_has_a_bundle_and_the_others_have_none(tmp_path):
    base = [output_row(output=name) for name in ("worse", "same", "better", "broken", "gone")]
    head = [
        output_row(output="worse", sqnr_db=20.0),
        output_row(output="same"),
        output_row(output="better", sqnr_db=40.0),
        no_number("failed:convert", output="broken", error="RuntimeError: x"),
        output_row(output="new"),
    ]
    found = _failing(tmp_path, base, head)
    assert {output for _, output, _ in found} == {"worse", "broken"}
    assert ("bundles/resnet-small-trained-x86-static-released-converted-worse", "worse", 1) in found


def test_a_waived_row_has_no_bundle(tmp_path):
    old, new = _pair(sqnr_db=20.0)
    assert len(_failing(tmp_path, [old], [new])) == 1
    assert _failing(tmp_path, [old], [new], waive=[{"model": "resnet", "reason": "known"}]) == []


def test_where_only_quantizers_fail_their_graphs_first_output_stands_for_them(tmp_path):
    outputs = [output_row(output=name) for name in ("b", "a")]
    old = [quantizer_row(quantizer=name) for name in ("q", "r")]
    new = [quantizer_row(quantizer=name, hi=5.1) for name in ("q", "r")]
    stem = "resnet-small-trained-x86-static-released-converted-a"
    assert _failing(tmp_path, [*outputs, *old], [*outputs, *new]) == [(f"bundles/{stem}", "a", 2)]
    worse = [output_row(output="b", sqnr_db=20.0), output_row(output="a")]
    assert [output for _, output, _ in _failing(tmp_path, [*outputs, *old], [*worse, *new])] == ["b"]


def test_names_that_no_file_system_takes_stay_inside_and_apart(tmp_path):
    names = "../../x", "..\\..\\x", "a/b", "a b", "a\nb"
    base, head = ([output_row(output=name, sqnr_db=level) for name in names] for level in (30.0, 20.0))
    folders = [folder for folder, _, _ in _failing(tmp_path, base, head)]
    assert len(set(folders)) == len(names)
    assert all(re.fullmatch(r"bundles/[\w.+-]+", folder) and ".." not in folder.split("/") for folder in folders)
