"""The page for people at /ui/: files for a browser, which asks the API server as its user."""
