"""Custom resources, as apiextensions-apiserver serves them.

customresourcedefinitions   hooks of definitions: validation of schemas
customresources             what a definition yields: rows, types, hooks, columns
serving                     follows definitions and serves their resources
"""
