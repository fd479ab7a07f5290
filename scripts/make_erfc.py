#!/usr/bin/env python3
"""Prints the polynomial of elementary_erfc in device/elementary.h, computed to 60 digits.

With t = 4 / (4 + x), erfc(x) = t exp(-x^2) p(t) for x from 0 to 28, where erfc is far below the
smallest float. p is the Chebyshev series of exp(x^2) erfc(x) / t in t, truncated where its terms
fall below the precision of a double, and written in powers of u = a t - b, which goes from -1 to 1.

    scripts/make_erfc.py        (needs mpmath: Debian's python3-mpmath)
"""

from mpmath import cos, erfc, exp, mp, mpf, nstr, pi

TERMS, NODES, SCALE, LAST = 22, 80, 4, 28


def chebyshev(f):
    at = [pi * (mpf(k) + mpf(1) / 2) / NODES for k in range(NODES)]
    values = [f(cos(a)) for a in at]
    series = [2 * sum(v * cos(j * a) for v, a in zip(values, at)) / NODES for j in range(TERMS)]
    return [series[0] / 2, *series[1:]]


def powers(series):
    """The same polynomial as a sum of powers."""
    this, following, out = [mpf(1)], [mpf(0), mpf(1)], [mpf(0)] * TERMS
    for factor in series:
        for i, c in enumerate(this):
            out[i] += factor * c
        twice = [2 * c for c in [mpf(0), *following]]
        this, following = following, [c - d for c, d in zip(twice, [*this, mpf(0), mpf(0)])]
    return out


mp.dps = 60
FIRST = mpf(SCALE) / (SCALE + LAST)  # t at the end


def ratio(u):
    t = FIRST + (1 - FIRST) * (u + 1) / 2
    x = SCALE / t - SCALE
    return exp(x * x) * erfc(x) / t


print("u =", nstr(2 / (1 - FIRST), 20), "* t -", nstr((1 + FIRST) / (1 - FIRST), 20))
for c in powers(chebyshev(ratio)):
    print(float(c).hex())
