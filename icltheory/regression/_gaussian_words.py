"""Exact means of products of traces of words in a Wishart matrix and a task.

W = (1/N) sum of chi chi' over N standard Gaussian vectors chi = (z, eps / sigma) in
d + 1 dimensions, T = theta theta' with theta = (delta, sigma), delta ~ N(0, Phi): so
y_i = chi_i' theta. By the theorem of Isserlis the mean of a product of traces is a sum
over matchings of the slots of all W and all T. Each matching closes cycles, whose
values are power sums of diagonal matrices.
"""

import functools
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping

import jax.numpy as jnp
import numpy as np

from icltheory._typing import Array


def mean_of_words(
    terms: tuple, letters: Mapping[str, Array], noise_var: Array, N: Array
) -> Array:
    """E of a sum of products of traces of words: (coefficient, (word, ...)) each.

    ``letters`` are diagonals on the d inputs, with that of Phi; they are 0 on noise.
    """
    coefficients, lost, noises, rows, spelled = _monomials(terms, tuple(letters))
    factors = jnp.stack([*letters.values(), jnp.ones_like(letters["phi"])])
    sums = jnp.sum(jnp.prod(factors[spelled], axis=1), axis=1)
    products = jnp.prod(jnp.append(sums, 1)[rows], axis=1)
    return jnp.sum(coefficients * noise_var**noises * products / N**lost)


@functools.lru_cache(32)
def _monomials(terms: tuple, names: tuple[str, ...]) -> tuple[np.ndarray, ...]:
    """Coefficients, powers of 1 / N and sigma^2, and their power sums as letters.

    The last two are indices, (monomials, factors) and (sums, letters), -1 for none.
    """
    total: Counter = Counter()
    for coefficient, words in terms:
        for monomial, weight in _mean(words):
            total[monomial] += coefficient * weight
    kept = [(m, c) for m, c in total.items() if c]
    sums = sorted({cycle for (_, _, cycles), _ in kept for cycle in cycles})
    index = {cycle: i for i, cycle in enumerate(sums)}
    rows = [[index[cycle] for cycle in cycles] for (_, _, cycles), _ in kept]
    columns = ([c for _, c in kept], *([m[i] for m, _ in kept] for i in (0, 1)))
    spelled = [[names.index(letter) for letter in cycle] for cycle in sums]
    return *map(np.array, columns), _padded(rows), _padded(spelled)


def _padded(rows: list[list[int]]) -> np.ndarray:
    width = max(map(len, rows))
    return np.array([row + [-1] * (width - len(row)) for row in rows])


def _mean(words: tuple) -> Iterator:
    """Monomials of the mean of a product of traces, with their weights."""
    links, kinds, plain = _links(words)
    slots = {kind: [s for s in links if kinds[s // 2] == kind] for kind in "WT"}
    num_W = len(slots["W"]) // 2
    pairs = (_matchings(slots[kind]) for kind in "WT")
    for of_W, of_T in itertools.product(*map(list, pairs)):
        # W that are linked by pairs share their example.
        joined = _cycles({slot: (slot ^ 1, ()) for slot in of_W}, kinds, of_W)
        lost = num_W - len(list(joined))
        choices = list(_cycles(links, kinds, of_W | of_T))
        for chosen in itertools.product(*choices):
            noises = sum(noise for noise, _ in chosen)
            cycles = [cycle for noise, cycle in chosen if not noise]
            # All matchings of the entries sigma have one value, that counts once.
            weight = 1 / math.prod(range(2 * noises - 1, 0, -2))
            yield (lost, noises, tuple(sorted(plain + cycles))), weight


def _links(words):
    """The slots 2i and 2i + 1 of letter i, linked by the letters between them."""
    links: dict = {}
    kinds, plain = [], []
    for word in words:
        large = [k for k, letter in enumerate(word) if letter in "WT"]
        if not large:
            plain.append(tuple(sorted(word)))
        turned = word + word[: large[0]] if large else word
        for n, (k, end) in enumerate(itertools.pairwise([*large, len(turned)])):
            one = 2 * (len(kinds) + n) + 1
            other = 2 * (len(kinds) + (n + 1) % len(large))
            between = turned[k + 1 : end]
            links[one], links[other] = (other, between), (one, between)
        kinds += [word[k] for k in large]
    return links, kinds, plain


def _matchings(slots: list[int]) -> Iterator[dict[int, int]]:
    """All ways to pair the slots, as a map from each to its partner."""
    if not slots:
        yield {}
        return
    first, *rest = slots
    for i, other in enumerate(rest):
        for pairs in _matchings(rest[:i] + rest[i + 1 :]):
            yield {first: other, other: first, **pairs}


def _cycles(links, kinds, partner) -> Iterator:
    """For each closed cycle its values: (pairs of noise, letters of a power sum)."""
    left = set(links)
    while left:
        slot = start = min(left)
        letters, tasks = [], 0
        while True:
            other, between = links[slot]
            letters += between
            tasks += kinds[other // 2] == "T"
            left -= {slot, other}
            slot = partner[other]
            if slot == start:
                break
        of_task = (0, tuple(sorted(letters + ["phi"] * tasks)))
        yield [of_task] if letters or not tasks else [of_task, (tasks, ())]
