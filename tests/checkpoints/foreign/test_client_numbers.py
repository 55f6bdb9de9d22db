"""A client's number in a file's name, in the forms that programs save."""

from pathlib import Path

import pytest

from fedscope.checkpoints.foreign.tensor_files import clients_in, numbered
from fedscope.errors import UserError

FORMS = {
    "client_7.pt": 7, "client7.pth": 7, "client-7.npz": 7, "client.7.ckpt": 7, "client_0007.bin": 7,
    "client_7_model.pt": 7, "Client7_last.pt": 7, "CLIENT-7-round-12.pth": 7, "model_client_7.pth": 7,
    "round_12_client_7.safetensors": 7, "fedavg.client7.best.pt": 7, "client_id_7.pt": 7,
    "client_model_7.pt": 7, "client 7.pt": 7, "client_7_of_client_7.pt": 7,
    "client.pt": None, "clients_7.pt": None, "7_client.pt": None, "client_best_7.pt": None,
    "client_0.7_lr.pt": None, "client_7.5.pt": None, "client_7a3f.pt": None, "model_7.pt": None,
    "client_round_7.pt": None, "site-7.pt": None,
}  # fmt: skip


@pytest.mark.parametrize(("name", "number"), FORMS.items())
def test_the_number_follows_the_word_client(name: str, number: int | None) -> None:
    assert numbered([Path(name)]) == ({} if number is None else {number: Path(name)})


@pytest.mark.parametrize("form", ["client_{}_model.pt", "client-{}-round-3.npz"])
def test_the_order_of_a_shell_does_not_matter(tmp_path: Path, form: str) -> None:
    expected = {client: tmp_path / form.format(client) for client in range(13)}
    for name in (*(path.name for path in expected.values()), "client_none.pt", "client_99.txt"):
        (tmp_path / name).touch()
    shell = sorted(expected.values())
    assert shell != list(expected.values())
    assert clients_in(tmp_path) == numbered(shell) == expected


def test_two_files_of_one_client_and_two_numbers_in_a_name_are_refused(tmp_path: Path) -> None:
    files = [tmp_path / "client_3_round_1.pt", tmp_path / "client_3_round_2.pt", tmp_path / "client_4.pt"]
    for file in files:
        file.touch()
    twice = r"client_3_round_1\.pt and client_3_round_2\.pt are both of client 3 by their names; .*K=FILE"
    with pytest.raises(UserError, match=twice):
        numbered(files)
    with pytest.raises(UserError, match=twice):
        clients_in(tmp_path)
    (tmp_path / "client_3.pt").touch()  # which is meant before what else has its number
    assert clients_in(tmp_path) == {3: tmp_path / "client_3.pt", 4: tmp_path / "client_4.pt"}
    with pytest.raises(UserError, match=r"client_1_for_client_2\.pt is of client 1 or 2 by its name"):
        numbered([Path("client_1_for_client_2.pt")])
