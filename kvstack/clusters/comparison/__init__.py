"""What is different between two contents: by the schema of each kind, in words that people use."""
