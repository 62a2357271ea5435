"""Devices of drivers, device classes, and claims.

Fields of features that are off by default are dropped unless the stored object has them.
"""
