import json
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from fedscope.errors import UserError
from fedscope.figures.spectrum.densities import density_figure, eigenvalue_figure
from fedscope.figures.spectrum.hessian_figures import bar_figure, client_bars
from fedscope.figures.spectrum.matrices import client_matrix_figure
from fedscope.figures.style import loss_colormap, method_colors, paper_style, save, typeset
from fedscope.figures.surface.profiles import profile_figure
from fedscope.figures.surface.surfaces import landscape_figure
from fedscope.records.cross_client_entry import CrossClientEntry
from fedscope.records.hessian_record import DensityEntry
from fedscope.records.landscape_record import BarrierEntry
from tests.figures.cases import bowl, crossing, drift, eigenvalues, profile, spectrum, trajectory

RECORD = {"checkpoint": "fedavg@25", "seed": 3}


def _landscape() -> Figure:
    return landscape_figure([bowl(), bowl(curvature=2.0, bad=3)], ["FedAvg", "FedAvg + MAN"])


def _spectra() -> Figure:
    return density_figure(
        [DensityEntry.read(spectrum()), DensityEntry.read(spectrum(top=20.0))],
        ["FedAvg", "FedDyn"],
        lambda_max=[50.0, 20.0],
    )


def _plane() -> Figure:
    return landscape_figure([drift(5), trajectory(5)], ["FedAvg", "FedDyn"], kind="contour")


def _heat() -> Figure:
    return landscape_figure([bowl(bad=3)], ["FedAvg"], kind="heat")


def _profile() -> Figure:
    return profile_figure([profile(bad=2)], ["FedAvg"], barriers=[BarrierEntry(height=1.0, at=0.5)])


def _leading() -> Figure:
    return eigenvalue_figure([eigenvalues(40), eigenvalues(4)], ["FedAvg", "FedDyn"])


def _matrices() -> Figure:
    return client_matrix_figure([CrossClientEntry.read(crossing(5, unresolved=True))], ["FedAvg"])


def _bars() -> Figure:
    return bar_figure(client_bars(CrossClientEntry.read(crossing(5))), axis="client")


MAKERS = [_landscape, _spectra, _plane, _heat, _profile, _leading, _matrices, _bars]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("suffix", [".png", ".pdf", ".svg"])
def test_the_same_input_gives_the_same_bytes(tmp_path: Path, make: Callable[[], Figure], suffix: str) -> None:
    for name in ("first", "second"):
        save(make(), (tmp_path / name).with_suffix(suffix), record=RECORD)
    assert (tmp_path / f"first{suffix}").read_bytes() == (tmp_path / f"second{suffix}").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"first{suffix}", f"second{suffix}"]


def test_png_has_300_dpi_its_record_and_a_picture(tmp_path: Path) -> None:
    figure = _landscape()
    save(figure, tmp_path / "a.png", record=RECORD)
    with Image.open(tmp_path / "a.png") as image:
        assert json.loads(image.info["Description"]) == RECORD
        assert image.width == pytest.approx(300 * figure.get_figwidth(), abs=1)
        pixels = np.asarray(image.convert("L"))
    middle = pixels[pixels.shape[0] // 2 :]
    assert len(np.unique(middle)) > 30
    assert (pixels[:, -3:] == 255).all(), "something is cut off at the right edge"


@pytest.mark.parametrize("make", MAKERS)
def test_pdf_embeds_type_42_fonts_and_no_date(tmp_path: Path, make: Callable[[], Figure]) -> None:
    save(make(), tmp_path / "a.pdf", record=RECORD)
    data = (tmp_path / "a.pdf").read_bytes()
    assert data.startswith(b"%PDF-")
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", data, flags=re.DOTALL)
    everything = data + b"".join(_inflated(stream) for stream in streams)
    assert b"/FontFile2" in everything
    assert b"/Type3" not in everything
    assert b"CreationDate" not in everything
    assert b"fedavg@25" in everything


def test_svg_is_xml_with_real_text(tmp_path: Path) -> None:
    save(_landscape(), tmp_path / "a.svg", record=RECORD)
    root = ElementTree.parse(tmp_path / "a.svg").getroot()
    texts = {"".join(node.itertext()).strip() for node in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"FedAvg", "FedAvg + MAN"} <= texts
    assert "3 of 121 points not finite" in texts


@pytest.mark.parametrize("name", ["a.jpg", "a", "a.png.tmp"])
def test_another_suffix_names_those_that_work(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r"\.png, \.pdf or \.svg"):
        save(Figure(), tmp_path / name, record={})
    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.png").write_bytes(b"old")
    figure = Figure()
    monkeypatch.setattr(figure, "savefig", _disk_full)
    with pytest.raises(OSError, match="No space left"):
        save(figure, tmp_path / "a.png", record={})
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a.png", b"old")]


def test_drawing_leaves_matplotlib_as_it_was(tmp_path: Path) -> None:
    before = dict(matplotlib.rcParams)
    save(_landscape(), tmp_path / "a.png", record={})
    assert dict(matplotlib.rcParams) == before


def test_the_users_own_settings_do_not_leak_in() -> None:
    with matplotlib.rc_context({"font.size": 40.0, "axes.grid": True}), paper_style():
        assert matplotlib.rcParams["font.size"] == 7.0
        assert not matplotlib.rcParams["axes.grid"]


def test_colormap_grows_evenly_lighter_and_methods_differ() -> None:
    colors = loss_colormap()(np.linspace(0, 1, 64))[:, :3]
    grey = colors @ [0.299, 0.587, 0.114]
    assert (np.diff(grey) > 0).all()
    assert len(set(method_colors(8))) == 8


@pytest.mark.parametrize(
    ("plain", "typed"),
    [
        ("FedAvg + MAN", "FedAvg + MAN"),
        ("ε₁₂", "ε$_{12}$"),
        ("2×10⁻³", "2×10$^{-3}$"),
        ("λ_max", r"$\lambda_{\max}$"),
        ("5$ and 6$", r"5\$ and 6\$"),
        ("f_k(w_k), H_N", r"$f_k$($w_k$), $H_N$"),
        ("a run of_k, map_k", "a run of_k, map_k"),
    ],
)
def test_typeset(plain: str, typed: str) -> None:
    assert typeset(plain) == typed


def _inflated(stream: bytes) -> bytes:
    try:
        return zlib.decompress(stream)
    except zlib.error:
        return b""


def _disk_full(*args: object, **kwargs: object) -> None:
    raise OSError(28, "No space left on device")
