"""What stands in a table of SQNR, whichever side it is turned on."""

from __future__ import annotations

import pandas as pd


def cells(table: pd.DataFrame) -> dict[tuple[str, str], str]:
    """The cells that are not empty, by flow and point, and by model and output."""
    first, *columns = table.columns
    return {
        (name, column) if first == "flow" else (column, name): value
        for name, *values in table.itertuples(index=False, name=None)
        for column, value in zip(columns, values, strict=True)
        if value
    }
