"""The verbs: what a request does, from its body to its result, in Kubernetes' own order.

    dispatch       which coroutine answers a verb
    reading/       get, list, watch
    writing/       create, update, patch: body → validation → admission → transaction
    deletion/      delete, deletecollection, the end of namespaces
    subresources/  verbs on part of an object
    forms/         media types, versions and conversions of bodies and objects

A verb is a coroutine that gets a `Call` and returns a result (results.py), or raises ApiError. It
waits for the store alone. It knows nothing of HTTP: how a result is written is http's.
"""
