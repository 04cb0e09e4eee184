"""Synthetic examples, made by the hundred with array work alone.

An attempt at a block of examples draws wishes (:mod:`.wishlist`), lays the evidence of each query (:mod:`.laying`), fills
the graphs (:mod:`.problems`), solves them and lists their candidate walks (:mod:`.findings`, by way of :mod:`.chains`,
:mod:`.links` and :mod:`.relations`), cuts or contradicts the evidence of some (:mod:`.breaking`), and turns what came out
into rows (:mod:`.rows`). What failed is tried again. Every draw is a pure function of its counter (:mod:`.counters`), so an
example does not depend on the block that it is made in.
"""

from hopline.datasets.synthetic.examples import SyntheticExamples

__all__ = ["SyntheticExamples"]
