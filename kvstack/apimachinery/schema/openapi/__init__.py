"""OpenAPI documents, versions 2 and 3, made from the table: its types and its rows."""
