"""Limits on requests and answers: seats and queues, time, bytes that clients have not taken yet."""
