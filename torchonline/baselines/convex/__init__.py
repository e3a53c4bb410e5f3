"""Online convex learners from other papers, for comparison."""
