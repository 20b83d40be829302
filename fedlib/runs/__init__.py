"""What happens around the rounds: the loop, its setting, history and result, the run store, sweeps."""
