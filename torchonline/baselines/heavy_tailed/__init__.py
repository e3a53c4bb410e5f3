"""Heavy-tailed linear bandits to compare with."""
