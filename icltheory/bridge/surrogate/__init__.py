"""Theorem 2 on a linear surrogate of each layer of a language model.

:func:`surrogate_terms` puts linear attention in the place of softmax, with the model's
own weights and hidden states, and computes the norms of the implicit updates and the
terms of Theorem 2, layer by layer and rate by rate, with a measure of how far the
surrogate is from the model.
"""

from icltheory._public import shown
from icltheory.bridge.surrogate.terms import SurrogateTerms, surrogate_terms

__all__ = ["SurrogateTerms", "surrogate_terms"]

__dir__ = shown(__name__)
