"""The status page: one look at a member and its cluster, at /ui on the client port.

browser ──► /ui        one page, all of it inline: no internet, no other file
        ──► /ui/data   JSON: counters of one moment, and how they went in the last minutes
"""
