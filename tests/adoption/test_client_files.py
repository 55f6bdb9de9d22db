"""`--client FILE` and `--client K=FILE`: which files are whose, and what is refused."""

from pathlib import Path

import pytest
import torch

from fedscope.adoption.layouts import clients_of, look
from fedscope.errors import UserError
from tests.adoption.test_whose import app as app  # a fixture
from tests.adoption.test_whose import filled, saved


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["1="], "K=FILE with the client's number K from 0, not '1='"),
        (["x=f.pt"], "not 'x=f.pt'"),
        (["=f.pt"], "not '=f.pt'"),
        (["-1=a.pt"], "not '-1=a.pt'"),
        (["+1=a.pt"], r"not '\+1=a.pt'"),
        (["1.0=a.pt"], "not '1.0=a.pt'"),
        (["9999999999=a.pt"], "not '9999999999=a.pt'"),
        (["٣=a.pt"], "not '٣=a.pt'"),
        (["1=a.pt", "01=b.pt"], "client 1 is given twice: a.pt and b.pt"),
        (["1=a.pt", "b.pt"], "FILE or K=FILE, not some of both"),
    ],
)
def test_what_is_no_client_is_refused(app: Path, given: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        clients_of(given)


def test_a_name_with_an_equals_sign_is_a_file(app: Path) -> None:
    torch.save(filled(0), app / "epoch=3-client_2.pt")
    assert clients_of(["epoch=3-client_2.pt"]) == (Path("epoch=3-client_2.pt"),)
    assert clients_of(["2=epoch=3-client_2.pt"]) == {2: Path("epoch=3-client_2.pt")}
    assert clients_of(["2=~/a.pt"]) == {2: Path.home() / "a.pt"}  # shells leave it after an equals sign
    assert look(app / "server.pt", clients_of(["epoch=3-client_2.pt"])).clients.keys() == {2}


def test_two_files_of_a_client_in_a_folder_are_chosen_between_by_name(app: Path) -> None:
    """The way out that the refusal names, for the folder and for its file alone."""
    files = saved(app, "client_{}_round_1.pt", (0, 1)) | {2: app / "client_1_round_2.pt"}
    torch.save(filled(1.0), files[2])
    with pytest.raises(UserError, match=r"are both of client 1 by their names; .*--client K=FILE"):
        look(app)
    for path in (app, app / "server.pt"):
        assert look(path, {0: files[0], 1: files[2]}).clients == {0: files[0], 1: files[2]}
