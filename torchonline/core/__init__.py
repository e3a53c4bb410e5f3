"""The runtime of all learners: state, steps, backends and checks."""
