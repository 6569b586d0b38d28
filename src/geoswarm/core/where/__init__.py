"""Conditions on the columns of rows, as SQL writes them: `speed > 80 AND status IN ('free', 'idle')`."""
