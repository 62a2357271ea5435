"""What is known of an expression before it runs: types, functions, costs."""
