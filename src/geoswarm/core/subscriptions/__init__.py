"""The attributes of a subscription: each is declared once, and `attributes.py` is the table of them. No I/O."""
