"""`make bench`: how fast this machine trains, as ratios of turns taken side by side in one run."""
