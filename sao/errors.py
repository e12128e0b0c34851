"""The one exception for what a person can put right: its message is a single line that says what is wrong and what to do."""


class InputError(ValueError):
    """Bad input; the command line prints the message and exits with code 2."""


def printable(text: str) -> str:
    """The text with control characters and undecodable bytes escaped: safe to print, to log and to write as JSON."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
