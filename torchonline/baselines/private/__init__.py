"""Private learners from other papers, for comparison."""
