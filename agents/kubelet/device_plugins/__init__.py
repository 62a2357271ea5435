"""Devices that plugins of the machine offer, as extended resources (device plugins, v1beta1).

plugins     who is there: registration, and which devices each has
devices     which containers have which of them, and what they need to use them
gen         the messages, generated from proto/
"""
