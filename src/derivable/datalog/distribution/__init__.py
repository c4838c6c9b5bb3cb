"""A program on several machines: which rows belong together, and what each machine needs besides.

A column that every rule of a recursion passes on unchanged is a pivot: rows with different values of it never meet, and
so each machine may compute the rows of its values only.
"""
