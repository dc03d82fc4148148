"""What a user's mistake becomes."""


class InputError(ValueError):
    """Invalid input; the message says what is wrong, what was found and what to do."""
