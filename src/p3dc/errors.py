"""What a user's mistake becomes."""


class InputError(ValueError):
    """Bad input, told in one sentence: what is wrong, what was found, what to do."""
