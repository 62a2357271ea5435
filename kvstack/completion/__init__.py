"""Completion of the command line in shells, written from the tables of flags.

    words ──► bash | zsh | fish ──► a script

A script is whole: it starts no Python while somebody types. What it looks up then are names of
forks (directories) and of contexts (`kubectl config get-contexts`).
"""
