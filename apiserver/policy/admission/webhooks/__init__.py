"""MutatingAdmissionWebhook and ValidatingAdmissionWebhook."""
