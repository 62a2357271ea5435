"""The devices of the machine that a container may use, and their enforcement.

rules      the list: what every container has, and what one is given
program    the list as a program for the kernel (control groups of version 2)
groups     the list for a control group, in whichever way this machine has
"""
