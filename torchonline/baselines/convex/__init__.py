"""Online convex learners to compare with."""
