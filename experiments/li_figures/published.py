"""Numbers read off those figures of Li et al. whose settings are not published."""

from experiments.cot import PUBLISHED, PUBLISHED_LENGTHS

__all__ = [
    "FIGURE_14",
    "FIGURE_19",
    "LARGE",
    "LAYERS",
    "LENGTHS_19",
    "MASS",
    "NEIGHBOURS",
    "NEIGHBOUR_LENGTHS",
    "NORMS",
    "PUBLISHED",
    "PUBLISHED_LENGTHS",
    "RANGES",
    "TURNS",
]

# Figure 8: mean norm of W_Q p and of its component along the pattern. Figures 10 and
# 11: norms of feature and label parts of the large neurons. All are at the last
# iteration.
NORMS = {"query": 1.75, "component": 1.47, "feature": 0.42, "label": 1.2}
# Smallest and largest norm in Figures 10, 11 and, for the rows of W_O, 14.
RANGES = {"feature": (0.37, 0.47), "label": (1.1, 1.33), "size": (0.48, 0.51)}
# Angles over pi: feature part to the mean pattern, label part to q or -q.
TURNS = {"feature": 0.12, "label": 0.165}
# Figure 9 at the last iteration, and the number of large neurons among 64 in Figure 14.
MASS, LARGE = 0.995, 53
# Figure 14: 0-1 error out of domain, unpruned and at a pruned share of .4.
FIGURE_14 = {"unpruned": 0.007, "small first": 0.030, "random": 0.044}
# Figure 19 by prompt length; plain in-context learning is shown where Condition 1
# holds.
LENGTHS_19 = (10, 20, 40, 60, 80, 100)
FIGURE_19 = {
    "chain": (0.15, 0.081, 0.042, 0.034, 0.019, 0.0135),
    "direct": (0.35, 0.23, 0.125, 0.10, 0.067, 0.052),
}
# Figures 24 to 26: norm of the label parts of three layers, at the start and the end.
LAYERS = (0.01, (0.05, 0.036, 0.026))
# Figures 27 and 28: errors of in-context learning by alpha' and prompt length.
NEIGHBOUR_LENGTHS = (6, 8, 10, 12, 14, 16, 18, 20)
NEIGHBOURS = {
    0.8: (0.035, 0.015, 0.010, 0.0085, 0.003, 0.0025, 0.0015, 0.001),
    0.6: (0.08, 0.043, 0.023, 0.0075, 0.007, 0.0035, 0.0025, 0.0015),
}
