"""The static checks of an expression: types, functions, costs."""
