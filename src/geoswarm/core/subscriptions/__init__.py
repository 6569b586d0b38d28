"""What a subscription is made of: each attribute is declared once, and `columns.py` is the table of them. No I/O."""
