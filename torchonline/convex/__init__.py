"""Online convex optimisation."""
