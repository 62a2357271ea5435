"""Admission: plugins that complete or refuse an object before it is stored."""
