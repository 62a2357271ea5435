"""Which devices of the machine a container may use, and how the kernel is made to see to it.

rules      the list: what every container has, and what one is given
program    the list as a program for the kernel (control groups of version 2)
groups     the list for a control group, in whichever way this machine has
"""
