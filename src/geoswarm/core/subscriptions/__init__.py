"""The attributes of a subscription: each is declared once, and `columns.py` is the table of them. No I/O."""
