"""Tables and figures of the paper, each one command. Of a table: rows → runs (row, data set, seed) → numbers → files."""
