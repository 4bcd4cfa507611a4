"""The leading terms of finite pretraining, exactly: Gaussian moments of degree eight.

Those of a block are means of products of traces of words in W = (1/N) sum chi chi',
over N standard Gaussian vectors chi = (z, eps / sigma), and T = theta theta', theta =
(delta, sigma), delta ~ N(0, Phi); so y_i = chi_i' theta. By the theorem of Isserlis
such a mean is a sum over matchings of the slots of all W and all T.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping

import jax.numpy as jnp
import numpy as np

from icltheory._typing import Array
from icltheory.regression._linalg import einsum


def step_constant(white, N):
    """C of the linear step, in whitened coordinates where E w w' is diagonal.

    Given the task w, the cumulants of x y are w, V = s I + w w', 2 (w w w + 3 s sym(w
    I)) and 6 (w w w w + 6 s sym(w w I) + s^2 sym(I I)), with s = Var(y). So the moments
    of h = X'y / N that C needs are products of two quadratic forms in (w, 1).
    """
    seen, phi, noise_var = white.seen, white.phi, white.noise_var
    q = seen / white.omega(N)  # the inverse of E h h'
    g = phi * q
    size, second = jnp.sum(q), jnp.append(phi, 1)
    fixed = jnp.append(white.m**2, 0)

    def form(diagonal, constant=0):
        return jnp.append(diagonal, constant)

    def mean_of(A, B):
        product = jnp.sum(A * second) * jnp.sum(B * second)
        product += 2 * jnp.sum((A * B * second**2)[:-1])
        return product - 2 * jnp.sum(A * fixed) * jnp.sum(B * fixed)

    s, in_q, in_g = form(seen, noise_var), form(q), form(g**2)
    square = ((N + 1) * in_q + size * s) / N  # E h' q h
    apart, moved = form(g * (g - seen)), form(g * (g - seen) * q)
    turned, both, trace = form(g**2 * q), jnp.sum(g**2 * q), jnp.sum(g**2)
    first = mean_of(trace * s + in_g, square)
    first += 4 * (mean_of(s, moved) + mean_of(apart, in_q))
    more = mean_of(4 * apart, in_q + size * s) + mean_of(4 * in_q, in_g + trace * s)
    more += mean_of(s, 8 * moved + 12 * turned + 2 * both * s)
    more += 2 * mean_of(in_g, in_q)
    tail = 6 * mean_of(in_g, in_q) + (2 * trace * size + 4 * both) * mean_of(s, s)
    tail += 6 * mean_of(s, trace * in_q + size * in_g + 4 * turned)
    found = mean_of(form((seen - g) ** 2), square)
    found += first / N + more / N**2 + tail / N**3
    rank = jnp.sum(seen)
    return rank**2 * noise_var + (rank + 2) * found


def start_constant(white, N, family):
    r"""The part of C that start, values and labels add, in whitened coordinates.

    It is E e^2 psi' K psi for the features psi = (x, W g x, t x) of one coordinate,
    with W = X'X / N, t = |y|^2 / N and K the inverse of their 3 x 3 second moments.
    """
    phi, seen, tau, noise_var = white.phi, white.seen, white.tau, white.noise_var
    g = phi / white.omega(N)
    labels = (1 + 2 / N) * (tau**2 + 2 * white.square)
    second = [
        [seen, g, tau * seen],
        [g, g**2 * (N + 1) / N + seen * jnp.sum(g**2) / N, g * (tau + 2 * phi / N)],
        [tau * seen, g * (tau + 2 * phi / N), labels * seen],
    ]
    second = jnp.stack([jnp.stack(row) for row in second])
    free = {"GDBeta": [[1, -1, 0]], "LSA": [[0, 1, 0], [0, 0, 1]], "LTB": np.eye(3)}
    basis = jnp.asarray(free[family], phi.dtype)
    within = einsum("ai,ijd,bj->dab", basis, second, basis)
    within += einsum("d,ab->dab", 1 - seen, jnp.eye(len(basis), dtype=phi.dtype))
    inverse = jnp.linalg.inv(within)
    K = einsum("ai,dab,bj,d->ijd", basis, inverse, basis, seen)
    letters = {"phi": phi, "g": g, "P": seen}
    letters |= {f"k{i}{j}": K[i, j] for i in range(3) for j in range(i, 3)}
    size = mean_of_words(_SIZE_TERMS, letters, noise_var, N)
    return mean_of_words(_ERROR_TERMS, letters, noise_var, N) + noise_var * size


def _words():
    """Words of E (x'r)^2 x'Mx and of E x'Mx, r the error of the task's weights."""
    label = ("W", "T")  # t = tr W T
    sizes = [(1.0, (("k00",),)), (1.0, (("g", "W", "k11", "W", "g"),))]
    sizes += [(1.0, (word,)) for word in (("k01", "W", "g"), ("g", "W", "k01"))]
    sizes += [(1.0, (word, label)) for word in (("k12", "W", "g"), ("g", "W", "k12"))]
    sizes += [(2.0, (("k02",), label)), (1.0, (("k22",), label, label))]
    square = (1.0, ("P", "T", "P")), (-2.0, ("g", "W", "T", "P"))
    errors: list[tuple[float, tuple]] = []
    for a, left in (*square, (1.0, ("g", "W", "T", "W", "g"))):
        for c, (word, *labels) in sizes:
            errors.append((a * c, (left, word, *labels)))
            errors.append((2 * a * c, (left + word, *labels)))
    return tuple(errors), tuple(sizes)


_ERROR_TERMS, _SIZE_TERMS = _words()


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
