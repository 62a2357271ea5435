"""Acts on part of an object, or on one object in a way of its own."""
