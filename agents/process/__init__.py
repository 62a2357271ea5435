"""What processes of agents share: flags, leader election, pages for operators."""
