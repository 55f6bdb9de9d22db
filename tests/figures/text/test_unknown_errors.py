"""An error that is not known stands as "–" behind the value, with a note that says what would tell it."""

import math

from fedscope.figures.text.client_tables import NO_ERROR_NOTE as OF_CLIENTS
from fedscope.figures.text.client_tables import clients_tables
from fedscope.figures.text.sharpness_tables import NO_ERROR_NOTE as OF_SHARPNESS
from fedscope.figures.text.sharpness_tables import sharpness_table
from fedscope.records.clients_record import ClientsRecord
from tests.figures.clients.records import record as clients
from tests.records.test_sharpness_record import quantity, record


def test_of_sharpness() -> None:
    known = sharpness_table([record()])
    assert OF_SHARPNESS not in known.notes
    unknown = quantity("trace", 0.0, stderr_data=None, dof_data=None, batches=[], batch_sizes=[])
    table = sharpness_table([record(quantities=[unknown])])
    assert table.rows[0][2].endswith("± –")
    assert OF_SHARPNESS in table.notes


def test_of_clients_once_where_it_first_occurs() -> None:
    whole = clients()
    assert not any(OF_CLIENTS in table.notes for table in clients_tables(whole))
    content = whole.to_json()
    for side in ("own", "global"):
        content["alignment"][side]["share"] |= {"stderr_data": None, "stderr_probe": None}
    found = [OF_CLIENTS in table.notes for table in clients_tables(ClientsRecord.read(content))]
    assert math.fsum(found) == 1
    titles = [table.title for table in clients_tables(whole)]
    assert titles[found.index(True)] == "Updates and curvature"
