"""What the service answers calls with that it cannot take."""


class OverloadedError(Exception):
    """More calls wait than the service answers soon: ask again later."""


class UnknownIdError(Exception):
    """A reward for an id that stands for no decision, where such rewards are refused."""
