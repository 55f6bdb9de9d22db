"""Spectra of several checkpoints on shared axes: densities with their bands, largest eigenvalues."""

import math
from dataclasses import replace

from fedscope.figures.digits import format_estimate
from fedscope.figures.spectrum.densities import density_panel
from fedscope.figures.spectrum.eigenvalues import eigenvalue_panel
from fedscope.records.hessian_record import DensityEntry
from fedscope.report.curvature_tables import negative_mass
from fedscope.report.plotly_panels import Chart, chart, plain
from fedscope.report.subjects import Shown


def density_chart(shown: Shown) -> Chart | None:
    found = [
        (subject, record.lambda_max.value, record.density)
        for subject, record in shown
        if record.density and any(value > 0 for value in record.density.density)
    ]
    if not found:
        return None
    subjects, tops, densities = zip(*found, strict=True)
    panel = density_panel(densities, [subject.name for subject in subjects], lambda_max=tops)
    looks = {line.label: subject for line, subject in zip(panel.lines, subjects, strict=True)}
    masses = [
        f"{subject.name}: width σ {format_estimate(one.sigma)}{_negative(one)}" for subject, _, one in found
    ]
    linear = f"linear within ±{plain(panel.x.within)}"
    return chart(
        "density",
        replace(panel, x_label=f"eigenvalue ({linear})"),
        looks,
        alt=f"Eigenvalue densities on a logarithmic scale. {'; '.join(masses)}.",
        caption=f"Logarithmic axes; the eigenvalues' is {linear}. "
        f"Bands: 95 % intervals over the probes; triangles: λ_max. {'; '.join(masses)}.",
    )


def spectrum_chart(shown: Shown) -> Chart | None:
    # the smallest have no index from the largest
    spectra = [(subject, record.ends[0]) for subject, record in shown]
    found = [
        (subject, largest)
        for subject, largest in spectra
        if len(largest) > 1 and not any(math.isnan(one.value) for one in largest)
    ]
    if not found:
        return None
    subjects, largest = zip(*found, strict=True)
    panel = eigenvalue_panel(largest, [subject.name for subject in subjects])
    tops = [
        f"{subject.name} from {format_estimate(ends[0].value)} to {format_estimate(ends[-1].value)}"
        for subject, ends in found
    ]
    return chart(
        "spectrum",
        replace(panel, x_label="index, from the largest"),
        {subject.name: subject for subject in subjects},
        alt=f"The eigenvalues found one by one: {'; '.join(tops)}.",
        caption="Bars: 95 % intervals over the samples.",
    )


def _negative(density: DensityEntry) -> str:
    return f", share of eigenvalues below −σ {negative_mass(density.negative_mass)}"
