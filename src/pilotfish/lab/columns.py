"""The families `sums` (reasoning-gym's chain_sum) and `decimals` (decimal_chain_sum): sums, column by column.

    45 + 12 - 30     Tens: 40 + 10 - 30 = 20. Ones: 5 + 2 - 0 = 7. 20 + 7 = 27. The answer is 27.
    4.5 + 1.2        Whole: 4 + 1 = 5. Tenths: 0.5 + 0.2 = 0.7. 5 + 0.7 = 5.7. The answer is 5.7.

Skills are the left column, the right column, and any column that has no minus. Who lacks the skill is out by one, or
right by luck.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from pilotfish.lab.worked import Line, Problem, shown

LEFT, RIGHT, PLUS = "left column", "right column", "columns without minus"
TERMS = (2, 3)


@dataclass(frozen=True, slots=True)
class Columns:
    """A family of sums of two columns."""

    name: str
    gym: str
    options: dict[str, Any]
    labels: tuple[str, str]
    units: tuple[int, int]
    """Of the two columns, in units of 1 / scale."""
    smallest: tuple[int, int]
    """The least digit of each column; the largest is 9."""
    scale: int = 1

    def draw(self, rng: Random) -> Problem:
        """A problem as reasoning-gym would ask it."""
        terms = [self._term(rng) for _ in range(rng.randint(*TERMS))]
        return self.problem([1, *(rng.choice((1, -1)) for _ in terms[1:])], terms)

    def problem(self, signs: Sequence[int], terms: Sequence[int]) -> Problem:
        """A sum of terms, each with its sign; terms are in units of 1 / scale."""
        left = [term // self.units[0] * self.units[0] for term in terms]
        right = [term - whole for term, whole in zip(terms, left, strict=True)]
        asked = written(signs, [f"{term / self.scale:.1f}" if self.scale > 1 else str(term) for term in terms])
        lines = (self._line(0, LEFT, signs, left), self._line(1, RIGHT, signs, right))
        question = f"State the final answer to the following arithmetic problem: {asked} ="
        return Problem(question, lines, self.scale)

    def _term(self, rng: Random) -> int:
        digits = (rng.randint(least, 9) for least in self.smallest)
        return sum(digit * unit for digit, unit in zip(digits, self.units, strict=True))

    def _line(self, column: int, skill: str, signs: Sequence[int], terms: Sequence[int]) -> Line:
        truth = sum(sign * term for sign, term in zip(signs, terms, strict=True))
        unit = self.units[column]
        left_side = written(signs, [shown(term, self.scale) for term in terms])
        return Line(
            skills=frozenset({skill} if -1 in signs else {skill, PLUS}),
            truth=truth,
            guesses=(truth - unit, truth, truth + unit),
            told=tuple(truth + steps * unit for steps in range(-3, 4)),
            template=f"{self.labels[column]}: {left_side} = {{value}}",
        )


def written(signs: Sequence[int], terms: Sequence[str]) -> str:
    """`45 + 12 - 30`; the first term has no sign."""
    later = (f" {'+' if sign > 0 else '-'} {term}" for sign, term in zip(signs[1:], terms[1:], strict=True))
    return "".join((terms[0], *later))


SUMS = Columns(
    name="sums",
    gym="chain_sum",
    options={"min_terms": TERMS[0], "max_terms": TERMS[1], "min_digits": 2, "max_digits": 2},
    labels=("Tens", "Ones"),
    units=(10, 1),
    smallest=(1, 0),
)
DECIMALS = Columns(
    name="decimals",
    gym="decimal_chain_sum",
    options={
        "min_terms": TERMS[0],
        "max_terms": TERMS[1],
        "min_digits": 1,
        "max_digits": 1,
        "min_decimal_places": 1,
        "max_decimal_places": 1,
    },
    labels=("Whole", "Tenths"),
    units=(10, 1),
    smallest=(0, 1),
    scale=10,
)
