"""Where contents come from: a module each, and one interface (`source`)."""
