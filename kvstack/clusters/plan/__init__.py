"""What would follow from a change: it is made on a fork in virtual time, and both are compared.

plan_run      the fork, before and after: runs it until nothing moves
file_change   the change is files; command_change: it is a command
pruning       what files have no more
writes        who changed what, and when
stuck         what does not come to an end, and why
unforeseen    what nobody here can know
by_itself     what would have come without the change, too
outline       differences as a tree: by whom, in which order
printing      the outline as a table, JSON and markdown
"""
