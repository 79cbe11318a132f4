"""What a replay says: the same to the last bit, or each thing that differs, likely causes first."""

from __future__ import annotations

import json

import pytest

from harness.replay import Measured, compare
from harness.report import replay_text
from tests.bundles import FACTS, measured, written
from tests.rows import no_number, output_row, quantizer_row

HASH = "a" * 64


def _lines(tmp_path, now: Measured, *, was=None, **then) -> list[str]:
    return replay_text.lines(compare(written(tmp_path, was, **then), now))


def test_the_same_row_is_reproduced_to_the_last_bit(tmp_path):
    assert _lines(tmp_path, measured()) == ["reproduced to the last bit: 30.00 dB"]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"environment": {"cpu": "another"}}, "cpu a cpu -> another"),
        ({"environment": {"stack": {"torchao": "0.17.0"}}}, "torchao 0.18.0 -> 0.17.0"),
        ({"environment": {"stack": {"nncf": "3.4.0"}}}, "nncf not installed -> 3.4.0"),
        ({"environment": {"pins": {"MKL_CBWR": ""}}}, "MKL_CBWR COMPATIBLE -> none"),
        ({"environment": {"platform": "linux-aarch64"}}, "platform linux-x86_64 -> linux-aarch64"),
        ({"environment": {"python": "3.12.1"}}, "python 3.11.7 -> 3.12.1"),
        ({"adapter": {"resnet.py": HASH, "_digits.py": "4" * 64}},
         "adapter resnet.py: another SHA-256, 333333333333... -> aaaaaaaaaaaa..."),
        ({"adapter": {"resnet.py": "3" * 64}}, "adapter _digits.py: is gone"),
        ({"weights_hash": HASH}, "weights trained: another SHA-256, 111111111111... -> aaaaaaaaaaaa..."),
        ({"inputs": {"calibration": ["2" * 64], "evaluation": [HASH, "2" * 64, HASH]}},
         "evaluation inputs: batches 1, 3 with other data"),
        ({"inputs": {"calibration": [HASH], "evaluation": ["1" * 64, "2" * 64]}},
         "calibration inputs: batch 1 with other data"),
        ({"inputs": {"calibration": ["2" * 64], "evaluation": ["1" * 64, "2" * 64]}},
         "evaluation inputs: 1 batch fewer"),
    ],
)  # fmt: skip
def test_what_differs_without_moving_a_bit_is_said_and_is_harmless(tmp_path, changes, line):
    first, *rest = _lines(tmp_path, measured(**changes))
    assert first == "reproduced to the last bit: 30.00 dB"
    assert f"different, but harmless: {line}" in rest


def test_causes_come_in_order_of_likelihood_and_values_after_them(tmp_path):
    now = measured(
        output_row(sqnr_db=24.1),
        quantizer_row(hi=5.1),
        environment={"cpu": "another", "stack": {"torchao": "0.17.0"}, "pins": {"MKL_CBWR": ""}},
        adapter={**FACTS.adapter, "resnet.py": HASH},
        weights_hash=HASH,
        inputs={**FACTS.inputs, "evaluation": [HASH]},
    )
    lines = _lines(tmp_path, now)
    assert lines[0] == "not reproduced: resnet/small/trained x86-static converted logits: 30.00 dB -> 24.10 dB"
    starts = ("torchao", "cpu", "MKL_CBWR", "adapter", "weights", "evaluation", "logits: SQNR 30.00 dB -> 24.10 dB")
    assert [line.startswith(f"- {start}") for line, start in zip(lines[1:8], starts, strict=True)] == [True] * 7
    assert lines[8] == "- quantizer conv1:conv2d:0:input: upper bound 2.55 -> 5.1"
    assert lines[9].startswith("measured again by: sqnr run -m resnet")


def test_the_last_bit_counts_and_is_shown_though_it_is_lost_in_rounding(tmp_path):
    next_to_30 = 30.000000000000004
    assert next_to_30 == 30 + 2**-48
    [first, line, _] = _lines(tmp_path, measured(output_row(sqnr_db=next_to_30)))
    assert first.startswith("not reproduced")
    assert line == "- logits: SQNR 30.0 -> 30.000000000000004"


def test_minus_zero_is_another_bit_than_zero(tmp_path):
    assert len(_lines(tmp_path, measured(None, quantizer_row(lo=-0.0)))) == 3


def test_quantizers_that_came_or_went_are_counted(tmp_path):
    now = measured(None, *(quantizer_row(quantizer=name) for name in "abcd"))
    lines = _lines(tmp_path, now)
    assert "- quantizer conv1:conv2d:0:input: gone" in lines
    assert "- 4 quantizers (a, b, c, ...): added" in lines


def test_a_failure_reproduces_when_its_stage_fails_with_the_same_first_line(tmp_path):
    was = no_number("failed:convert", error="KeyError: 'x' in /home/ann/flow.py at 0x7f0000000001")
    same = no_number("failed:convert", error="KeyError: 'x' in /srv/ci/flow.py at 0x7f0000000002")
    told = "failed:convert: KeyError: 'x' in flow.py at 0x..."
    assert _lines(tmp_path, measured(same), was=was) == [f"reproduced to the last bit: {told}"]
    for other in (
        no_number("failed:prepare", error=same.error),
        no_number("failed:convert", error="KeyError: 'y'"),
        output_row(),
    ):
        assert _lines(tmp_path, measured(other), was=was)[0].startswith("not reproduced")


def test_an_error_cut_to_300_characters_is_the_same_whatever_was_cut(tmp_path):
    def cut(folder: str) -> str:
        return f"KeyError: {folder}/flow.py {'x' * 400}"[:300]

    was, now = (no_number("failed:convert", error=cut(folder)) for folder in ("/home/ann", "/srv/a/longer/one"))
    assert _lines(tmp_path, measured(now), was=was)[0].startswith("reproduced")


def test_a_model_that_no_longer_loads_has_not_lost_its_inputs_helpers_and_weights(tmp_path):
    row = no_number("failed:load", error="ImportError: timm")
    now = measured(row, weights_hash="", inputs={}, adapter={"resnet.py": "3" * 64})
    lines = _lines(tmp_path, now)
    assert [line.split(":")[0] for line in lines[1:-1]] == ["- logits"]
    assert "status measured -> failed:load, error none -> ImportError: timm" in lines[1]


def test_an_output_that_is_gone_is_not_reproduced(tmp_path):
    lines = _lines(tmp_path, Measured(None, (quantizer_row(),), FACTS))
    assert lines[0].endswith("30.00 dB -> not measured")


def test_what_the_minimised_graph_says_counts(tmp_path):
    replayed = compare(written(tmp_path), measured(), ["bad.pt2 gives other bits"])
    assert not replayed.reproduced
    assert "- minimised graph: bad.pt2 gives other bits" in replay_text.lines(replayed)


def test_json_has_every_difference_exactly(tmp_path):
    now = measured(output_row(sqnr_db=0.1 + 0.2), environment={"stack": {"torchao": "0.17.0"}})
    content = json.loads(replay_text.as_json(compare(written(tmp_path), now)))
    assert (content["reproduced"], content["figure"], content["output"]) == (False, "30.00 dB", "logits")
    assert content["differences"] == [
        {"kind": "stack", "name": "torchao", "then": "0.18.0", "now": "0.17.0", "field": ""},
        {"kind": "output", "name": "logits", "then": 30.0, "now": 0.30000000000000004, "field": "sqnr_db"},
    ]
