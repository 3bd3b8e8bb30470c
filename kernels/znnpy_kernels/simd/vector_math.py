"""Elementary functions of float32 vectors (exp, log, tanh, logistic, softplus, normal ...), to a few ulps.

Polynomials are minimax fits made for this file (weighted least squares after Lawson, float64, rounded to float32):
exp on |r| <= ln(2)/2 as 1 + r + r^2 q(r); log through atanh, 2 s (1 + s^2 q(s^2)); the normal distribution's tail as
e^(-x^2 / 2) t q(t), t = 1 / (1 + 0.35 x), to 3e-8. NaN gives NaN everywhere; arguments too large or small give the
right limits.
"""

from __future__ import annotations

from typing import Any

from znnpy_kernels.machine.inlining import inlined
from znnpy_kernels.simd.vectors import (
    absolute,
    bits,
    fma,
    from_bits,
    int_to_float,
    select,
    splat,
    splat_int,
)

# To float64's precision; used as float32.
LOG2_E = 1.4426950408889634
# ln 2 in two parts: the first has few bits, so n * LN2_HIGH is exact for every n in range.
LN2_HIGH = 0.693359375
# What LN2_HIGH lacks of ln 2.
LN2_LOW = -0.00021219444005471377
# Adding 1.5 * 2^23 rounds to the nearest integer and leaves it in the low bits.
ROUND = 12582912.0
# The bits of ROUND as a float32: subtracted, they leave the integer.
ROUND_BITS = 0x4B400000


@inlined
def larger(a: Any, b: Any) -> Any:
    """Return the lanewise maximum; NaN in `b` wins, NaN in `a` is lost."""
    # A comparison and a blend, in this order of operands, whose treatment of NaN is the same on every CPU.
    return select(a > b, a, b)


@inlined
def _two_to(n: Any) -> Any:
    # n + 127 in the exponent bits; right for -126 <= n <= 127.
    return from_bits((n + splat_int(127)) << splat_int(23))


@inlined
def _reduced(x: Any) -> Any:
    """Return n and expm1(r) with x = n ln 2 + r."""
    rounded = fma(x, splat(LOG2_E), splat(ROUND))
    n = rounded - splat(ROUND)
    # ln 2 in two parts: n * LN2_HIGH is exact, so only LN2_LOW rounds (Cody and Waite).
    r = fma(n, splat(-LN2_LOW), fma(n, splat(-LN2_HIGH), x))
    # The minimax polynomial q of the head, by Horner's rule.
    q = fma(r, splat(0.0013814467238262296), splat(0.008368780836462975))
    q = fma(q, r, splat(0.04166839271783829))
    q = fma(q, r, splat(0.1666651964187622))
    q = fma(q, r, splat(0.4999999403953552))
    # The integer n stands in the low bits of the sum with ROUND: subtracting its pattern takes it out, without
    # a conversion.
    return bits(rounded) - splat_int(ROUND_BITS), fma(r * r, q, r)


@inlined
def exp(x: Any) -> Any:
    """Return e^x; results below 1.2e-38 may flush to 0, above 3.4e38 become Inf."""
    # Beyond these the results are 0 and Inf anyway, and n stays within what two factors hold. NaN passes: no
    # comparison with it is true.
    x = select(x < splat(-110.0), splat(-110.0), x)
    x = select(x > splat(100.0), splat(100.0), x)
    n, small = _reduced(x)
    # 2^n in two factors: n itself runs beyond the exponents of float32. 256, which keeps both positive,
    # less 2 is the sum of their biases of 127.
    half = from_bits(((n + splat_int(256)) >> splat_int(1)) << splat_int(23))
    rest = n + splat_int(256) - ((n + splat_int(256)) >> splat_int(1))
    rest = from_bits((rest - splat_int(2)) << splat_int(23))
    return (small + splat(1.0)) * half * rest


@inlined
def expm1(x: Any) -> Any:
    """Return e^x - 1 for x <= 0 (relative accuracy also near 0)."""
    # Below -80 the result is -1 in float32; 2^n stays a normal number.
    x = select(x < splat(-80.0), splat(-80.0), x)
    n, small = _reduced(x)
    scale = _two_to(n)
    # One rounding less than (2^n - 1) + 2^n r, which would cancel near 0.
    return fma(scale, small, scale - splat(1.0))


@inlined
def tanh(x: Any) -> Any:
    """Return the hyperbolic tangent."""
    # By expm1 of a negative number: near 0 no digits cancel, and nothing overflows.
    t = expm1(splat(-2.0) * absolute(x))
    y = t / (t + splat(2.0))
    return select(x > splat(0.0), -y, y)


@inlined
def logistic(x: Any) -> Any:
    """Return 1 / (1 + e^-x), by e^-|x|: nothing overflows, and values near 0 keep their digits."""
    e = exp(-absolute(x))
    return select(x > splat(0.0), splat(1.0), e) / (splat(1.0) + e)


@inlined
def logistics(x: Any) -> Any:
    """Return the logistic of x and that of -x, by one e^-|x|."""
    e = exp(-absolute(x))
    positive, sum_ = x > splat(0.0), splat(1.0) + e
    return select(positive, splat(1.0), e) / sum_, select(positive, e, splat(1.0)) / sum_


@inlined
def log1p(x: Any) -> Any:
    """Return log(1 + x) for x in [0, 1]."""
    # log(1 + x) = 2 atanh(x / (x + 2)), a series in s^2 that converges fast for x <= 1.
    s = x / (x + splat(2.0))
    u = s * s
    # Minimax for u <= 1/9, the largest s^2 here.
    q = fma(u, splat(0.12187469750642776), splat(0.10704740881919861))
    q = fma(q, u, splat(0.14309202134609222))
    q = fma(q, u, splat(0.19999414682388306))
    q = fma(q, u, splat(0.3333333730697632))
    twice = s + s
    return fma(twice * u, q, twice)


@inlined
def softplus(x: Any) -> Any:
    """Return log(1 + e^x), by e^-|x|: nothing overflows, and values near 0 keep their digits."""
    return select(x > splat(0.0), x, splat(0.0)) + log1p(exp(-absolute(x)))


@inlined
def normal(x: Any) -> Any:
    """Return the normal distribution function at x, and e^(-x^2 / 2); values near 0 keep their digits."""
    a = absolute(x)
    # Beyond 20 the tail is below the smallest float32; the clip keeps the square within what exp takes.
    a = select(a > splat(20.0), splat(20.0), a)
    square = a * a
    # Put back the rounding error of the square: an absolute error of the exponent is a relative one of the tail.
    lost = fma(a, a, -square)
    e = exp(splat(-0.5) * square)
    e = fma(e, splat(-0.5) * lost, e)
    # t maps 0 .. 20 to 1 .. 1/8, where a polynomial of few terms is enough.
    t = splat(1.0) / fma(a, splat(0.35), splat(1.0))
    q = fma(t, splat(-0.029163096100091934), splat(0.14405708014965057))
    q = fma(q, t, splat(-0.2558947801589966))
    q = fma(q, t, splat(0.15938551723957062))
    q = fma(q, t, splat(-0.023259174078702927))
    q = fma(q, t, splat(0.10557299852371216))
    q = fma(q, t, splat(0.11981591582298279))
    q = fma(q, t, splat(0.13986428081989288))
    q = fma(q, t, splat(0.13962125778198242))
    tail = e * (q * t)
    return select(x > splat(0.0), splat(1.0) - tail, tail), e


@inlined
def log(x: Any) -> Any:
    """Return the natural logarithm for normal x > 0; Inf and NaN give NaN."""
    # sqrt(1/2) as bits: mantissas m run over [sqrt(1/2), sqrt(2)).
    shifted = bits(x) - splat_int(0x3F3504F3)
    # These shifts bring zeros in: 512 less where the sign was set.
    # An arithmetic shift by hand: vectors of int32 have only a logical one here.
    exponent = (shifted >> splat_int(23)) - ((shifted >> splat_int(31)) << splat_int(9))
    m = from_bits(bits(x) - (exponent << splat_int(23)))
    s = (m - splat(1.0)) / (m + splat(1.0))
    u = s * s
    # Minimax for |s| <= (sqrt(2) - 1) / (sqrt(2) + 1), the largest here: fewer terms than `log1p` needs.
    q = fma(u, splat(0.1494280844926834), splat(0.1998853236436844))
    q = fma(q, u, splat(0.33333390951156616))
    n = int_to_float(exponent)
    twice = s + s
    # Small terms first, then the large exact one: the sum rounds once at the size of the result.
    low = fma(twice * u, q, n * splat(LN2_LOW))
    return fma(n, splat(LN2_HIGH), twice + low) + (x - x)  # Inf - Inf is NaN, as is NaN - NaN
