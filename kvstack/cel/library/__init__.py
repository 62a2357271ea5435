"""The functions of expressions, a module a library: declarations, and what is done.

Each module has FUNCTIONS (declarations, see `checker/functions.py`) and IMPLEMENTATIONS: by the
identifier of an overload a function of the plain values. Operators have none: `evaluation` knows
them.
"""
