"""report.html: one file that shows a run, or several side by side, without a network and without anything installed."""
