"""Log densities in arithmetic of many digits, written from their definitions: the truth for values and derivatives."""

import mpmath as mp

#: Of log densities made of exponentials, of which e⁻⁵⁰⁰ beside one takes 217; and of others, which are slow.
DIGITS, FEW = 1000, 150


def constant(function, *arguments):
    """What does not depend on η, and cancels in differences."""
    with mp.workdps(30):
        return function(*arguments)


def sigma(x):
    return 1 / (1 + mp.exp(-x))


def normal(z):
    return mp.erfc(-z / mp.sqrt(2)) / 2


def bernoulli(eta, y):
    return mp.log(sigma(eta) if y else 1 - sigma(eta))


def probit(eta, y):
    return mp.log(normal(eta) if y else normal(-eta))


def binomial(eta, y):
    k, n = map(int, y)
    return mp.log(mp.binomial(n, k)) + k * mp.log(sigma(eta)) + (n - k) * mp.log(1 - sigma(eta))


def poisson(eta, y):
    return y * eta - mp.exp(eta) - constant(mp.loggamma, y + 1)


def negative_binomial(eta, y, concentration):
    p = mp.exp(eta) / (mp.exp(eta) + concentration)
    choose = constant(lambda: mp.log(mp.gamma(y + concentration) / mp.gamma(concentration) / mp.factorial(y)))
    return choose + concentration * mp.log(1 - p) + y * mp.log(p)


def ordinal(eta, y, cuts):
    ends = [-mp.inf, *cuts, mp.inf]
    above, below = (mp.mpf(int(c > 0)) if mp.isinf(c) else sigma(c - eta) for c in (ends[y + 1], ends[y]))
    return mp.log(above - below)


def student_t(eta, y, scale, degrees):
    z = (y - eta) / scale
    ratio = constant(lambda: mp.gamma((degrees + 1) / 2) / mp.gamma(degrees / 2) / mp.sqrt(degrees * mp.pi) / scale)
    return mp.log(ratio) - (degrees + 1) / 2 * mp.log(1 + z**2 / degrees)


def gamma(eta, y, concentration):
    rate = concentration / mp.exp(eta)
    return (
        concentration * mp.log(rate) - constant(mp.loggamma, concentration) + (concentration - 1) * mp.log(y) - rate * y
    )


def beta(eta, y, concentration):
    a, b = concentration * sigma(eta), concentration * (1 - sigma(eta))
    return mp.loggamma(a + b) - mp.loggamma(a) - mp.loggamma(b) + (a - 1) * mp.log(y) + (b - 1) * mp.log(1 - y)


def censored(eta, y, scale):
    lower, upper = y
    if lower == upper:
        z = (lower - eta) / scale
        return -(z**2) / 2 - mp.log(2 * mp.pi) / 2 - mp.log(scale)
    a, b = (lower - eta) / scale, (upper - eta) / scale
    return mp.log(normal(-a) - normal(-b) if a > 0 else normal(b) - normal(a))


def weibull(eta, y, concentration):
    lower, upper = y

    def survives(t):
        return mp.mpf(0) if mp.isinf(t) else mp.exp(-((t * mp.exp(-eta)) ** concentration))

    if lower == upper:
        x = lower * mp.exp(-eta)
        return mp.log(concentration) - mp.log(lower) + concentration * mp.log(x) - x**concentration
    return mp.log(survives(lower) - survives(upper))


def derivatives(log_prob, eta, y, *parameters):
    """Value, gradient and curvature in η, to many digits, as floats."""
    with mp.workdps(FEW if log_prob in (probit, beta, censored) else DIGITS):
        return _derivatives(log_prob, eta, y, parameters)


def _derivatives(log_prob, eta, y, parameters):
    y = tuple(map(mp.mpf, y)) if isinstance(y, tuple) else y if isinstance(y, int) else mp.mpf(y)
    parameters = [[mp.mpf(x) for x in p] if isinstance(p, tuple) else mp.mpf(p) for p in parameters]

    def at(x):
        return log_prob(x, y, *parameters)

    eta, step = mp.mpf(eta), mp.mpf(10) ** (-mp.mp.dps // 5)
    low, middle, high = at(eta - step), at(eta), at(eta + step)
    return [float(x) for x in (middle, (high - low) / (2 * step), -(high - 2 * middle + low) / step**2)]
