"""Webhook calls: addresses, requests, and valid answers.

Used by admission, conversion of custom resources, and token and access reviews, which interpret the
answers.
"""
