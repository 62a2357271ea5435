"""Clusters for test suites in any language, each a process of its own, made from a warmed one.

    farm ──starts──► template ──fork()──► cluster c1       answers
     │ HTTP          rests, does          cluster c2
     │               not listen
    test suite

messages      what farm, templates and clusters say to each other
template      a cluster that rests, and the clusters that are forked from it
cluster       one that was forked: listens, and does what the farm asks
preparing     runs a script against a cluster; its objects are what others begin with
farm          templates and clusters, their limits and their ends
routes        the HTTP interface
"""
