"""Whether errors lean to one side: rounding that truncates stays within every element's bound, and still drifts.

Rounding to nearest errs up as often as down, and as often away from zero as towards it. So let x_i be the error of an
inexact element over its bound, or that times the sign of the exact value, and y_j the sums of those x_i that share a
rounding. With signs that are fair and independent, Hoeffding's inequality, applied to the signs while the magnitudes
|y_j| are held, says of the n elements

    P(|mean x| > k sqrt(sum y_j^2) / n) <= 2 exp(-k^2 / 2)

which is k / sqrt(n) root mean squares where nothing is shared. It holds whatever the magnitudes are; FALSE_ALARM gives
k. A run makes some hundred such measurements of a spec.

Signs are independent where values and gradients are drawn at random. Every score and every dw is a sum of its own. In
dq and dk the D elements of a row share the roundings of g*w, which move all of them away from zero together where the
row has few terms: there y_j is the sum of a row.

Systematic part. Results are denser towards zero, within one step of the rounding too, so rounding to nearest goes a
little more often away from zero: for a density f by ulp^2/12 |f'/f|, which over the half ulp of the bound, for a normal
distribution and ulp <= eps |v|, is eps/6 on average. Sums of some hundred terms of different scale are more peaked than
that; eps is allowed. Truncation gives a half.

Tensor cores truncate their sums, which makes products that relu has made positive too small: scores and dw lean there
by nature, and are left to their bounds. dq and dk sum terms of either sign, and lean towards zero only.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log, sqrt

import torch
from torch import Tensor

from v4gen.run.evidence import Measurement
from v4gen.run.subject import Subject

FALSE_ALARM = 1e-9
DEVIATIONS = sqrt(2 * log(2 / FALSE_ALARM))


def sign_bias(subject: Subject, name: str, actual: Tensor, exact: Tensor, bound: Tensor) -> Iterator[Measurement]:
    """Hold the mean error upwards, and that away from zero, in units of the bound against what chance explains.

    `actual` of any dtype, `exact` and `bound` float64, all of one shape. Nothing comes of a quantity that is exact, nor
    of a case whose values are not random.
    """
    truncates = subject.device != "cpu"
    if not _has_fair_signs(subject) or (truncates and name not in ("dq", "dk")):
        return
    found = actual.detach().cpu().double()
    inexact = (found != exact) & found.isfinite() & exact.isfinite() & bound.isfinite() & (bound > 0)
    if not inexact.any():
        return
    errors = ((found - exact) / bound).where(inexact, 0)
    sharing = name.startswith(("dq", "dk"))
    systematic, count = torch.finfo(actual.dtype).eps, int(inexact.sum())
    yield _lean(f"sign bias of {name}", errors, sharing, count, systematic)
    if not truncates:
        yield _lean(
            f"bias of {name} away from zero", errors * exact.sign().where(inexact, 0), sharing, count, systematic
        )


def _has_fair_signs(subject: Subject) -> bool:
    """Whether values and gradients are random, and no two samples the same."""
    case = subject.case
    return case.values == "normal" and case.gradient in ("dense", "transposed") and case.view != "expanded"


def _lean(name: str, errors: Tensor, sharing: bool, count: int, systematic: float) -> Measurement:
    """The mean of `count` errors, those along the last axis `sharing` roundings or not."""
    mean, sums = float(errors.sum()) / count, errors.sum(-1) if sharing else errors
    chance = DEVIATIONS * sqrt(float(sums.square().sum())) / count
    return Measurement(name, abs(mean), chance + systematic, f"a mean of {mean:+.3g} over {count} elements")
