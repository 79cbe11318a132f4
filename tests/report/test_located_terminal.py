"""What `sqnr locate` prints: three figures, the culprits, the layers that lose most by themselves, the files."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from harness.located import Located
from harness.report.located_terminal import print_located
from tests.located_records import called, culprit, layer, located, no_level


def lines(record: Located, *files: Path) -> list[str]:
    text = io.StringIO()
    print_located(Console(file=text, width=80), record, files)
    return text.getvalue().splitlines()


def test_figures_culprits_layers_and_files_in_this_order() -> None:
    record = located(
        culprits=(culprit(alone_db=27.0), culprit(kind="layer", names=("fc:linear",), cause="numerics", alone_db=0.5)),
        layers=(
            layer(local_db=0.34),
            no_level("mismatch", name="fc:linear", op="linear", actual_op="qlinear", local_db=12.0, source=""),
        ),
        only_float=("drop:dropout",),
    )
    assert lines(record, Path("a.json"), Path("located.html")) == [
        "culprits of resnet/small/trained x86-static converted logits: 10.00 dB as it is; 40.00 dB with +fix; "
        "37.00 dB with the 2 culprits alone put right, 90.0 % of the difference",
        "1. conv1:conv2d.input: range [-1, 1.7] -> [0, 100] gains 27.0 of 30.0 dB alone (clipping, models/net.py:7)",
        "2. fc:linear: left in float gains 0.50 of 30.0 dB alone (numerics)",
        "lossiest of 2 layers, each by itself:",
        "- 0.34 dB local, 30.00 dB accumulated: conv1:conv2d (conv2d) at models/net.py:7",
        "- 12.00 dB local, mismatch accumulated: fc:linear (linear -> qlinear)",
        "layers of one graph alone: 1 float, 0 quantized",
        "located: a.json",
        "located: located.html",
    ]


def test_long_lists_are_cut_and_say_how_much_is_left() -> None:
    record = located(culprits=(culprit(),) * 13, layers=tuple(layer(local_db=float(n)) for n in range(900)))
    told = lines(record)
    assert "and 3 more culprits: see the record" in told
    assert [line[:6] for line in told if " local, " in line] == [f"- {n}.00" for n in range(5)]


def test_exact_layers_are_not_among_the_lossy_ones() -> None:
    assert not [line for line in lines(located(layers=(layer(local_db=160.0),))) if "lossiest" in line]


def test_no_line_is_a_command_to_github_or_moves_the_terminal() -> None:
    for name in ("a\n::error::pwned", "::error::pwned", "##[error]pwned", "\x1b[31mred", "[red]"):
        told = lines(called(name))
        assert not [line for line in told if line.lstrip().startswith("::") or "##[" in line or "\x1b" in line]
    assert any("[red]" in line for line in told), "a name is no markup"
