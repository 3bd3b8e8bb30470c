"""Products of spectra that are all kept: sums over images, cut by columns and frequencies."""

from __future__ import annotations

from dataclasses import dataclass

from znnpy_kernels.fft.products import spectral_product

from znnpy.engine.convolution.fft.spectra import Spectra
from znnpy.engine.tasks.identity import Identity
from znnpy.engine.tasks.step import Step
from znnpy.plan.cost import PRODUCT_RATE

COLUMNS = 4  # output images of one product task: they share the loads of the terms


@dataclass(frozen=True)
class Product:
    """Which spectra meet: out[row, column] = sum over terms of a[term, row] * b[term, column].

    Steps and firsts count spectra. `conjugate` multiplies with the conjugate of b.
    """

    terms: int
    rows: int
    columns: int
    a_term: int
    a_row: int
    b_term: int
    b_column: int
    out_row: int
    out_column: int
    conjugate: bool
    a_first: int = 0
    b_first: int = 0
    out_first: int = 0

    def touched(self, columns: range) -> tuple[list[int], list[int], list[int]]:
        """Indices of the spectra of a and b read, and of out written, for some columns."""
        terms, rows = range(self.terms), range(self.rows)
        return (
            [self.a_first + t * self.a_term + r * self.a_row for t in terms for r in rows],
            [self.b_first + t * self.b_term + c * self.b_column for t in terms for c in columns],
            [
                self.out_first + r * self.out_row + c * self.out_column
                for r in rows
                for c in columns
            ],
        )


def emit_product(
    step: Step,
    a: Spectra,
    b: Spectra,
    out: Spectra,
    shape: Product,
    what: Identity,
) -> None:
    """Sums of products of spectra, cut by output columns and ranges of frequencies."""
    seconds = shape.terms * shape.rows * a.floats * 4 / PRODUCT_RATE
    for first in range(0, shape.columns, COLUMNS):
        columns = range(first, min(first + COLUMNS, shape.columns))
        for low, high in a.cuts(seconds * len(columns)):
            values = {
                "a": a.at(shape.a_first, low),
                "a_term": shape.a_term * a.floats,
                "a_row": shape.a_row * a.floats,
                "b": b.at(shape.b_first + first * shape.b_column, low),
                "b_term": shape.b_term * b.floats,
                "b_column": shape.b_column * b.floats,
                "out": out.at(shape.out_first + first * shape.out_column, low),
                "out_row": shape.out_row * out.floats,
                "out_column": shape.out_column * out.floats,
                "terms": shape.terms,
                "rows": shape.rows,
                "columns": len(columns),
                "floats": high - low,
                "conjugate": int(shape.conjugate),
                "add": 0,
            }
            read_a, read_b, written = shape.touched(columns)
            step.add(
                spectral_product,
                values,
                what=what,
                cost=seconds * len(columns) * (high - low) / a.floats,
                reads=[a.region(i, low, high) for i in read_a]
                + [b.region(i, low, high) for i in read_b],
                writes=[out.region(i, low, high) for i in written],
            )
