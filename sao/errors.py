"""The one exception for what a person can put right: its message is a single line that says what is wrong and what to do."""


class InputError(ValueError):
    """Bad input; the command line prints the message and exits with code 2."""
