"""Who may do what: authentication, authorization and admission."""
