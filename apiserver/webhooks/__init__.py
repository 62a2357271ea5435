"""Calls of webhooks: where they are, what is sent, what may come back.

Admission, conversion of custom resources, and reviews of tokens and access go this way. What is
asked and what the answers mean is for those who ask.
"""
