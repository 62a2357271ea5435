"""What adds kinds: definitions of custom resources with their schemas, and APIServices."""
