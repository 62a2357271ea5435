"""What every process of the project runs on: the driver of turns, its sources, the clock, logs."""
