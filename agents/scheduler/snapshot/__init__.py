"""What decisions read: nodes and pods as columns of numbers, and what a pod asks for."""
