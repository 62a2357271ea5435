"""The dashboard at /ui/: files for a browser, which calls the API server as its user."""
