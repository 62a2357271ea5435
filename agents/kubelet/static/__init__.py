"""Static pods: pods of the node that no API server has bound to it.

static_pods  what there is: files, or pages of a server (`pages`)
mirrors      how the API shows them
"""
