"""Role-based access control: rules in roles, granted to users and groups by bindings."""
