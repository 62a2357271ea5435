"""The forms an object has on its way: bodies in media types, versions, conversions."""
