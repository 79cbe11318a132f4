"""What `sqnr fixes` prints of made-up diagnoses: the measured pair, the state, and what went wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from harness.fixes.states import Diagnosis
from harness.records import FixState
from harness.verbs.fixing import as_text, print_diagnoses

LINK = "https://example.invalid/issues/7"


def diagnosis(**changes: Any) -> Diagnosis:
    """A needed fix of release 1.2 that moves a range bound from 0.58 to 1."""
    values: dict[str, Any] = {
        "name": "mul-parameter",
        "link": LINK,
        "package": "upstream",
        "version": "1.2",
        "known": ("1.1", "1.2"),
        "measures": "range bound",
        "state": FixState.NEEDED,
        "released": 0.5833333,
        "repaired": 1.0,
    }
    return Diagnosis(**{**values, **changes})


def printed(capsys: pytest.CaptureFixture[str], *found: Diagnosis) -> str:
    print_diagnoses(found)
    return capsys.readouterr().out


def line_of(text: str, name: str) -> list[str]:
    """The cells of the table's line that begins with a name."""
    (line,) = (line for line in text.splitlines() if line.startswith(f"│ {name} "))
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_a_fix_shows_release_state_and_the_wrong_and_the_right_value(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, diagnosis())
    assert line_of(text, "mul-parameter") == [
        "mul-parameter", "upstream 1.2", "needed", "0.5833333", "1"
    ]  # fmt: skip
    assert text.splitlines()[-1] == f"mul-parameter: range bound; known in upstream 1.1, 1.2; {LINK}"


@pytest.mark.parametrize("state", FixState)
def test_every_state_is_shown_by_its_word(capsys: pytest.CaptureFixture[str], state: FixState) -> None:
    assert line_of(printed(capsys, diagnosis(state=state)), "mul-parameter")[2] == state.value


def test_what_could_not_be_measured_is_an_empty_cell(capsys: pytest.CaptureFixture[str]) -> None:
    absent = diagnosis(state=FixState.NOT_INSTALLED, version="", released=None, repaired=None)
    cells = line_of(printed(capsys, absent), "mul-parameter")
    assert cells == ["mul-parameter", "upstream", "not installed", "", ""]


def test_an_error_in_place_of_a_number_is_shown_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, diagnosis(released="RuntimeError: [red] 63 != 64"))
    assert line_of(text, "mul-parameter")[3:] == ["RuntimeError: [red] 63 != 64", "1"]


def test_below_the_table_each_fix_has_its_link_the_half_repair_and_what_went_wrong(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = printed(
        capsys,
        diagnosis(name="a", trapped="no quantizer"),
        diagnosis(name="b", trapped=0.25),
        diagnosis(name="c", state=FixState.UNKNOWN, repaired=None, note="SeamMovedError: no attribute '[x]'"),
        diagnosis(name="d", trapped=0.0, note="both"),
    )
    assert text.splitlines()[-4:] == [
        f"a: range bound; known in upstream 1.1, 1.2; {LINK}; half repaired: no quantizer",
        f"b: range bound; known in upstream 1.1, 1.2; {LINK}; half repaired: 0.25",
        f"c: range bound; known in upstream 1.1, 1.2; {LINK}; SeamMovedError: no attribute '[x]'",
        f"d: range bound; known in upstream 1.1, 1.2; {LINK}; half repaired: 0; both",
    ]


def test_the_fixes_keep_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *(diagnosis(name=name) for name in ("b", "a", "c")))
    lines = text.splitlines()
    assert [line.split(":")[0] for line in lines[-3:]] == ["b", "a", "c"]
    assert [line.split()[1] for line in lines if line.startswith("│ ")] == ["b", "a", "c"]


def test_without_a_fix_there_is_still_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert "released" in printed(capsys)


def test_as_json_values_are_exact_and_nothing_is_left_out() -> None:
    third = diagnosis(released=1 / 3, trapped="no quantizer", note="n")
    (one,) = json.loads(as_text([third]))
    assert one == {
        "name": "mul-parameter", "link": LINK, "package": "upstream", "version": "1.2",
        "known": ["1.1", "1.2"], "measures": "range bound",
        "state": "needed", "released": 1 / 3, "repaired": 1.0, "trapped": "no quantizer", "note": "n",
    }  # fmt: skip


def test_as_json_what_was_not_measured_is_null_and_no_fix_an_empty_list() -> None:
    (one,) = json.loads(as_text([diagnosis(state=FixState.UNKNOWN, released=None, repaired=None)]))
    assert (one["state"], one["released"], one["repaired"], one["trapped"]) == ("unknown", None, None, None)
    assert json.loads(as_text([])) == []
