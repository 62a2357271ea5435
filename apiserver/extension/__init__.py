"""What users add to the API: custom resources."""
