"""What is asked of one pod beside reading and writing it whole: its status, its node, its end."""
