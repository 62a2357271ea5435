"""Limits on requests and answers: seats and queues, time, unsent bytes."""
