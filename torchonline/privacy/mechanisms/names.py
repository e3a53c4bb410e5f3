"""Names of the mechanisms, and the numbers that stand for them in checkpoints."""

# Laws of noise on the scores of vertices.
VERTEX_LAWS = ("gumbel", "laplace")

# The place of a name is its number in a checkpoint, so the order stays.
MECHANISM_NAMES = ("none", "blt", "tree", "honaker", "sqrt", "paper", "discrete", *VERTEX_LAWS)


def number_of(name: str) -> tuple[str, float]:
    """Return the option that tells a checkpoint which mechanism a state belongs to."""
    return "mechanism", float(MECHANISM_NAMES.index(name))
