"""Snapshots from member to member."""
