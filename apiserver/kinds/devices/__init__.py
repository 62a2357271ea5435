"""Devices that drivers offer, classes of them, and claims to them.

Fields of features that are off by default are dropped unless the stored object has them.
"""
