"""Exact values of school arithmetic: integers, fractions, and polynomials in unknowns.

Integers stay ``int``: most values are integers, and ``Fraction`` is ten times slower.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd, isqrt

Number = int | Fraction
#: Pairs (symbol, exponent), sorted by symbol.
Monomial = tuple[tuple[str, int], ...]

MOST_BITS = 512
MOST_EXPONENT = 64
MOST_TERMS = 24


class NoValueError(ValueError):
    """The text has no exact value within the limits."""


@dataclass(frozen=True, slots=True)
class Polynomial:
    """Coefficients by monomial. At least one monomial contains a symbol. Exponents may be negative."""

    terms: tuple[tuple[Monomial, Number], ...]

    @property
    def unknowns(self) -> frozenset[str]:
        """The letters in the polynomial, except π and roots, which are known values."""
        return frozenset(name for monomial, _ in self.terms for name, _ in monomial if name[0] not in "√π")

    @property
    def is_symbol(self) -> bool:
        """Whether the polynomial is a single unknown."""
        (monomial, coefficient), *others = self.terms
        return not others and coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1


Value = Number | Polynomial


def symbol(name: str) -> Polynomial:
    """Return the unknown of that name."""
    return Polynomial(terms=((((name, 1),), 1),))


def add(first: Value, second: Value) -> Value:
    """Return the sum.

    Like all functions of this module, it raises ``NoValueError`` beyond the limits.

    >>> add(Fraction(1, 2), Fraction(1, 2))
    1
    """
    if isinstance(first, Polynomial) or isinstance(second, Polynomial):
        terms = _terms(first)
        for monomial, coefficient in _terms(second).items():
            terms[monomial] = terms.get(monomial, 0) + coefficient
        return _polynomial(terms)
    return plain(first + second)


def multiply(first: Value, second: Value) -> Value:
    """Return the product.

    >>> square = multiply(symbol("x"), symbol("x"))
    >>> name_value(multiply(square, 3))
    '3v^2'
    """
    if isinstance(first, Polynomial) or isinstance(second, Polynomial):
        left, right = _terms(first), _terms(second)
        if len(left) * len(right) > MOST_TERMS:
            raise NoValueError("too many terms")
        terms: dict[Monomial, Number] = {}
        for a, x in left.items():
            for b, y in right.items():
                both, factor = _multiply_monomials(a, b)
                terms[both] = terms.get(both, 0) + x * y * factor
        return _polynomial(terms)
    return plain(first * second)


def negate(value: Value) -> Value:
    """Return the negative."""
    return multiply(value, -1) if isinstance(value, Polynomial) else -value


def divide(first: Value, second: Value) -> Value:
    """Return the quotient. The divisor must have a single term.

    >>> divide(6, 4), divide(6, 3)
    (Fraction(3, 2), 2)
    """
    if isinstance(second, Polynomial):
        if len(second.terms) > 1:
            raise NoValueError("a divisor of several terms")
        ((monomial, coefficient),) = second.terms
        inverse = Polynomial(terms=((tuple((name, -power) for name, power in monomial), divide_plain(1, coefficient)),))
        return multiply(first, inverse)
    if second == 0:
        raise NoValueError("a divisor of 0")
    if isinstance(first, Polynomial):
        return multiply(first, divide_plain(1, second))
    return divide_plain(first, second)


def power(base: Value, exponent: Value) -> Value:
    """Return ``base`` to an integer exponent.

    >>> power(Fraction(2, 3), 3)
    Fraction(8, 27)
    """
    if not isinstance(exponent, int) or abs(exponent) > MOST_EXPONENT:
        raise NoValueError("an exponent that is not a small integer")
    if exponent < 0:
        return divide(1, power(base, -exponent))
    result: Value = 1
    # multiply one factor at a time, so that the limit on bits applies before the number is huge
    for _ in range(exponent):
        result = multiply(result, base)
    return result


def root(value: Value) -> Value:
    """Return the square root: exact if the fraction has an exact root, else with a new symbol.

    >>> root(16), name_value(root(50))
    (4, '5√2')
    """
    if isinstance(value, Polynomial) or value < 0:
        raise NoValueError("the root of an unknown or negative value")
    above, below = value.numerator, value.denominator
    if isqrt(above) ** 2 == above and isqrt(below) ** 2 == below:
        return divide_plain(isqrt(above), isqrt(below))
    inside, outside = above * below, 1
    for factor in range(2, 32):
        while inside % (factor * factor) == 0:
            inside //= factor * factor
            outside *= factor
    return multiply(divide_plain(outside, below), symbol(f"√{inside}"))


def plain(number: Number) -> Number:
    """Return an ``int`` if the number is whole.

    Raises ``NoValueError`` if the number is too large.
    """
    if isinstance(number, Fraction):
        if number.denominator == 1:
            number = number.numerator
        elif number.denominator.bit_length() > MOST_BITS:
            raise NoValueError("a number too long")
    if number.numerator.bit_length() > MOST_BITS:
        raise NoValueError("a number too long")
    return number


def divide_plain(first: Number, second: Number) -> Number:
    """Return the quotient of two numbers. The second must not be 0."""
    if isinstance(first, int) and isinstance(second, int):
        whole, rest = divmod(first, second)
        # a whole quotient has at most as many digits as ``first``
        return plain(Fraction(first, second)) if rest else whole
    return plain(Fraction(first) / second)


def linear_root(value: Value) -> Number | None:
    """Return the root of a polynomial that is linear in its only unknown, else None.

    >>> linear_root(add(multiply(symbol("n"), 40), -120))
    3
    """
    if not isinstance(value, Polynomial) or len(value.terms) > 2:
        return None
    by_monomial = dict(value.terms)
    constant = by_monomial.pop((), 0)
    if len(by_monomial) != 1:
        return None
    ((monomial, slope),) = by_monomial.items()
    if len(monomial) != 1 or monomial[0][1] != 1 or monomial[0][0][0] in "√π":
        return None
    return divide_plain(-constant, slope)


def name_value(value: Value) -> str:
    """Return a name of the value that does not depend on the names and order of unknowns.

    >>> name_value(Fraction(3, 2)), name_value(add(symbol("a"), 2)), name_value(add(2, symbol("length")))
    ('3/2', '1v+2', '1v+2')
    """
    if not isinstance(value, Polynomial):
        return str(value)
    return "+".join(sorted(_term_name(monomial, coefficient) for monomial, coefficient in value.terms))


def normalise_equation(value: Polynomial) -> Polynomial:
    """Return the equation value = 0 with coprime integer coefficients, the first of them positive."""
    below = 1
    for _, coefficient in value.terms:
        below = below * coefficient.denominator // gcd(below, coefficient.denominator)
    above = 0
    for _, coefficient in value.terms:
        above = gcd(above, int(coefficient * below))
    sign = 1 if max(value.terms, key=lambda term: (term[0] != (), abs(term[1]), term[1] > 0))[1] > 0 else -1
    factor = divide_plain(sign * below, above)
    return Polynomial(terms=tuple((monomial, plain(coefficient * factor)) for monomial, coefficient in value.terms))


def _term_name(monomial: Monomial, coefficient: Number) -> str:
    # roots and π keep their names, because they are not unknowns
    powers = sorted(
        (name if name[0] in "√π" else "v") + ("" if exponent == 1 else f"^{exponent}") for name, exponent in monomial
    )
    return f"{coefficient}{''.join(powers)}"


def _terms(value: Value) -> dict[Monomial, Number]:
    return dict(value.terms) if isinstance(value, Polynomial) else ({(): value} if value else {})


def _multiply_monomials(first: Monomial, second: Monomial) -> tuple[Monomial, Number]:
    """Return the product of two monomials, and a rational factor that results from roots."""
    if not second or (not first and all(exponent > 0 for _, exponent in second)):
        return first or second, 1
    exponents = dict(first)
    for name, exponent in second:
        exponents[name] = exponents.get(name, 0) + exponent
    factor: Number = 1
    for name, exponent in exponents.items():
        if abs(exponent) > MOST_EXPONENT:
            raise NoValueError("an exponent that is not a small integer")
        if name[0] == "√" and exponent not in (0, 1):
            factor *= plain(Fraction(int(name[1:])) ** (exponent // 2))
            exponents[name] = exponent % 2
    return tuple(sorted((name, exponent) for name, exponent in exponents.items() if exponent)), factor


def _polynomial(terms: dict[Monomial, Number]) -> Value:
    kept = {monomial: plain(coefficient) for monomial, coefficient in terms.items() if coefficient}
    if len(kept) > MOST_TERMS:
        raise NoValueError("too many terms")
    if not kept or set(kept) == {()}:
        return kept.get((), 0)
    return Polynomial(terms=tuple(sorted(kept.items(), key=lambda term: term[0])))
