"""Custom resources, as apiextensions-apiserver serves them.

customresourcedefinitions   the hooks of definitions: what schemas may say
customresources             what comes of a definition: rows, types, hooks, columns
serving                     follows definitions and serves what they define
"""
