"""The space in which samples are compared, and the rule that chooses the weights."""
