"""Devices that plugins of the machine offer, as extended resources (device plugins, v1beta1).

node_devices   the devices of a node; the rest is loaded for the first plugin
registration_socket   where plugins register
plugins     who is there: registration, and which devices each has
devices     which containers have which of them, and what they need to use them
gen         the messages, generated from proto/
"""
