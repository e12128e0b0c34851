"""A bar on a terminal, plain lines elsewhere, and nothing of a bar in a file."""

import io

from sao.training import bar
from sao.training.bar import Bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_is_drawn_on_a_terminal_and_goes_away():
    screen = Terminal()
    progress = Bar("reading", "items", screen)
    for done in (1, 50, 100):
        progress(done, 100, "so far")
        progress.last = 0
    text = screen.getvalue()
    assert "reading" in text
    assert "/100" in text
    assert text.endswith("\r")  # the line is free again


def test_a_bar_of_nobody_knows_how_many():
    screen, file = Terminal(), io.StringIO()
    progress, lines = Bar("reading", "items", screen), Bar("reading", "items", file)
    for done, total in ((1, 0), (50, 0), (50, 50)):
        progress(done, total)
        lines.last = -100
        lines(done, total)
    assert "items" in screen.getvalue()
    assert screen.getvalue().endswith("\r")
    assert file.getvalue() == "reading: 1 items\nreading: 50 items\nreading: 50 of 50 items\n"


def test_elsewhere_it_is_a_line_now_and_then(monkeypatch):
    file, now = io.StringIO(), [0.0]
    monkeypatch.setattr(bar.time, "monotonic", lambda: now[0])
    progress = Bar("reading", "items", file)
    for done in range(1, 41):
        now[0] += 1.0
        progress(done, 40)
    assert file.getvalue() == "reading: 15 of 40 items\nreading: 30 of 40 items\n"
