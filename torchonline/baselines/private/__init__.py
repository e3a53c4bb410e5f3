"""Private learners to compare with."""
