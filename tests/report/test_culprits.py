"""What is said of located cases: one line for each culprit, the three figures, and where culprits act."""

from __future__ import annotations

from typing import Any

import pytest

from harness.located import LayerLevel, Located
from harness.report import culprits
from harness.report.layer_axis import Axis, axis_of
from tests.located_records import called, culprit, layer, located, no_level

RIGHTED = "10.00 dB as it is; 40.00 dB with +fix; 37.00 dB with the culprit alone put right"
ONE = "conv1:conv2d.input: range [-1, 1.7] -> [0, 100]"


def line(of: Located | None = None, **changes: Any) -> str:
    """Of a record without layers, unless another is given, so that no source is known."""
    return culprits.text(of or located(layers=()), culprit(**changes))


# One line


def test_the_only_culprit_explains_what_is_explained_of_all_that_is_lost() -> None:
    """40 - 10 dB are lost, and with the culprit put right the output is 37 - 10 dB better."""
    assert line() == f"{ONE} explains 27.0 of 30.0 dB (clipping)"


def test_of_several_culprits_each_is_told_with_what_it_gains_alone() -> None:
    """Two clipped layers in a row may gain nothing one by one: that is not what they explain."""
    two = located(culprits=(culprit(), culprit()), layers=())
    assert line(two, alone_db=4.5) == f"{ONE} gains 4.5 of 30.0 dB alone (clipping)"
    assert line(two, alone_db=-0.2) == f"{ONE} gains -0.20 of 30.0 dB alone (clipping)"
    assert line(two) == f"{ONE} (clipping)", "it was not tried alone, and has no figure of its own"


def test_less_than_a_decibel_is_told_by_hundredths() -> None:
    assert line(alone_db=0.125, local_db=0.34).endswith("explains 0.12 of 30.0 dB (clipping, 0.34 dB local)")


def test_without_a_right_value_there_is_only_a_gain() -> None:
    assert line(located(other_db=None, layers=()), alone_db=3.0) == f"{ONE} gains 3.0 dB (clipping)"
    assert line(located(sqnr_db=None, layers=())) == f"{ONE} (clipping)"


@pytest.mark.parametrize(
    ("changes", "change"),
    [
        ({"new": None}, "range [-1, 1.7] -> float"),
        ({"old": None}, "range none -> [0, 100]"),
        ({"kind": "layer", "old": None, "new": None}, "left in float"),
        ({"old": None, "new": None}, "put right"),
        ({"old": (-1e-9, 123456.0)}, "range [-1e-09, 1.235e+05] -> [0, 100]"),
    ],
)
def test_what_becomes_of_the_range(changes: dict[str, Any], change: str) -> None:
    assert line(**changes) == f"conv1:conv2d.input: {change} explains 27.0 of 30.0 dB (clipping)"


def test_a_quantizer_without_ranges_is_put_right() -> None:
    assert line(old=None, new=None).startswith("conv1:conv2d.input: put right explains")


def test_what_gains_more_than_was_lost_explains_all_of_it() -> None:
    """A layer in float loses its rounding too."""
    told = line(located(sqnr_db=10.0, other_db=16.4, explained_db=157.4), kind="layer", alone_db=147.4)
    assert "explains all 6.4 dB, and gains 147.4" in told


def test_where_nothing_was_lost_a_gain_is_of_nothing() -> None:
    assert "gains 0.06 dB" in line(located(sqnr_db=37.0, other_db=36.95, explained_db=37.06), alone_db=0.06)


def test_those_that_share_their_qparams_are_named_up_to_three() -> None:
    assert line(names=("a", "b", "c")).startswith("a, b, c: range")
    assert line(names=tuple("abcde")).startswith("a, b, c and 2 more: range")


def test_cause_local_damage_and_source_stand_at_the_end() -> None:
    assert line(cause="", local_db=None, source="").endswith("dB")
    told = line(cause="numerics", local_db=1.5, source="models/net.py:7")
    assert told.endswith("(numerics, 1.5 dB local, models/net.py:7)")


def test_without_a_source_of_its_own_it_is_that_of_the_first_layer_that_reads_it() -> None:
    layers = (
        layer(name="a", source="a.py:1"),
        layer(name="b:mul", source="b.py:2"),
        layer(name="c:mul", source="c.py:3"),
    )
    assert line(located(layers=layers), names=("c:mul.self", "b:mul.self")).endswith("(clipping, b.py:2)")
    assert line(located(layers=layers), names=("b:mul.self",), readers=("a",)).endswith("(clipping, a.py:1)")
    assert line(located(layers=layers), source="own.py:4").endswith("(clipping, own.py:4)")


def test_no_name_makes_a_line_long_or_two_lines() -> None:
    told = line(names=("n" * 10_000,) * 4, source="s\n" * 10_000)
    assert len(told) < 500
    assert "\n" not in told


# The three figures


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, f"{RIGHTED}, 90.0 % of the difference"),
        ({"culprits": ()}, "10.00 dB as it is; 40.00 dB with +fix"),
        ({"against": "baseline", "culprits": ()}, "10.00 dB as it is; 40.00 dB with the baseline's ranges"),
        ({"against": "+fix", "other_db": 160.0, "culprits": ()}, "10.00 dB as it is; exact with +fix"),
        ({"sqnr_db": None, "other_db": None, "explained_db": None, "explained": None}, "no SQNR as it is"),
        ({"explained": None}, RIGHTED),
    ],
)
def test_an_output_as_it_is_put_right_and_with_its_culprits_put_right(changes: dict[str, Any], told: str) -> None:
    assert culprits.headline(located(**changes)) == f"resnet/small/trained x86-static converted logits: {told}"


def test_what_was_not_found_or_not_tried_is_said() -> None:
    assert culprits.remarks(located()) == []
    assert culprits.remarks(located(culprits=())) == ["no culprit was found"]
    two = (culprit(), culprit())
    assert culprits.remarks(located(culprits=two, minimal=False)) == ["not each of them was seen to be needed"]
    assert culprits.remarks(located(remark="out of\ntime")) == ["out of time"]


# Where they act


def marked(layers: tuple[LayerLevel, ...], *blamed: Any) -> list[tuple[int, int]]:
    found = culprits.places(located(layers=layers, culprits=blamed))
    return [(place.layer, place.culprit) for place in found]


def test_a_quantizer_acts_in_the_layer_that_its_name_begins_with() -> None:
    layers = layer(name="a:mul"), layer(name="a:mul#1"), layer(name="a.b:mul")
    assert marked(layers, culprit(names=("a:mul#1.self", "a.b:mul.other")), culprit(names=("a:mul.self",))) == [
        (0, 2), (1, 1), (2, 1)
    ]  # fmt: skip


def test_a_layer_is_its_own_place_and_an_unknown_name_has_none() -> None:
    assert marked((layer(name="a:mul"),), culprit(kind="layer", names=("a:mul",))) == [(0, 1)]
    assert marked((layer(name="a:mul"),), culprit(names=("b:mul.self", "nonsense", ""))) == []


def test_an_op_that_an_edge_pass_renamed_is_found_by_its_new_name() -> None:
    """`select#1` of the float graph is `select_copy#1` of the edge program, whose names its quantizers bear."""
    layers = layer(name="select#1", op="select", actual_op="select_copy"), layer(name="b:add", actual_op="add")
    assert marked(layers, culprit(names=("select_copy#1.self",))) == [(0, 1)]


def test_readers_say_all_places_where_the_name_says_only_the_first() -> None:
    layers = layer(name="slice"), layer(name="select"), layer(name="select#1")
    hoisted = culprit(names=("slice.self",), readers=("select", "select#1"))
    assert marked(layers, hoisted) == [(1, 1), (2, 1)]


def test_of_two_culprits_in_one_layer_the_first_is_marked() -> None:
    both = culprit(names=("conv1:conv2d.input",)), culprit(names=("conv1:conv2d.weight",))
    assert marked((layer(),), *both) == [(0, 1)]


def test_the_layers_that_lose_most_by_themselves_come_first_and_exact_ones_not_at_all() -> None:
    levels = (50.0, 160.0, None, 0.3, 20.0)
    assert culprits.worst_local([layer(local_db=level) for level in levels], 2) == [3, 4]
    assert culprits.worst_local([layer(local_db=level) for level in levels], 9) == [3, 4, 0]


@pytest.mark.parametrize("name", ["<b>", "a\u202eb", "two\nlines", "x" * 10_000])
def test_nothing_that_is_not_seen_is_in_any_line(name: str) -> None:
    record = called(name)
    told = [culprits.headline(record), *culprits.remarks(record), culprits.text(record, record.culprits[0])]
    assert all(text.isprintable() for text in told)


# The axis


@pytest.mark.parametrize(
    ("levels", "axis"),
    [
        ((30.0, 41.0), Axis(0.0, 50.0)),
        ((3.0, 160.0), Axis(0.0, 20.0)),
        ((-4.3, 23.0), Axis(-10.0, 30.0)),
        ((-500.0, 79.9), Axis(-20.0, 80.0)),
        ((160.0, None), Axis(0.0, 80.0)),
        ((), Axis(0.0, 80.0)),
    ],
)
def test_the_axis_ends_where_damage_does(levels: tuple[float | None, ...], axis: Axis) -> None:
    assert axis_of([layer(sqnr_db=level, local_db=None) for level in levels]) == axis
    assert axis_of([layer(sqnr_db=None, local_db=level) for level in levels]) == axis


def test_what_lies_outside_stands_at_the_ends() -> None:
    axis = axis_of([layer(sqnr_db=30.0, local_db=160.0), no_level("mismatch")])
    assert [axis.place(level) for level in (-7.0, 12.5, 160.0)] == [0.0, 12.5, 40.0]
