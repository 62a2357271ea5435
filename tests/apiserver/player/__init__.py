"""Plays recorded conversations with a Kubernetes API server against another one.

    scenarios.py    one scenario: its requests sent, its answers compared
    filling.py      what the other server gave, put into a recorded request
    comparing.py    two answers, and every place where they differ
    documents.py    bodies brought into a form in which order and dates that mean nothing are gone
    values.py       what cannot be the same twice: uids, revisions, times, generated names …
    learned.py      which own value stands for which recorded one, and what the requests chose
    target.py       the server under test: requests and connections
    streams.py      watches that stay open while later steps run
    tolerated.py    the table of differences that are allowed, each with its reason

A recording is a file of lines, a scenario a line: {"name", "about", "steps": [{"request",
"response"}]}; scenarios.py tells what else a step may have.
"""
