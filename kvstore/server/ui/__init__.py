"""The status page: a member and its cluster, at /ui on the client port.

browser ──► /ui        one page, all of it inline: no internet, no other file
        ──► /ui/data   JSON: counters of one moment, and their rates in the last minutes
"""
