"""The HTML report: one file that opens offline; `page` lays it out, `view` and `figures` say what it shows."""
