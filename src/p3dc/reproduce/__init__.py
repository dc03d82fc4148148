"""The paper's experiments on features of your own."""
