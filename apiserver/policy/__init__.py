"""Authentication, authorization and admission."""
