"""Tables of the paper: rows → cells (a row on a data set with a seed) → runs → numbers → Markdown and JSON."""
