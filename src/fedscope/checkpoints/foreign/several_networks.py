"""Several networks in one file: what each is by its place, the trained network before its copies."""

import re
from collections.abc import Collection

_KINDS = (  # how its place reads, what that is; of several the first is suggested
    (r"(?:model_|net_)?state_dict(?:\..*)?", "the program's network"),
    (r"(?:modopt\.)?(?:model|net|network|module|server|weights|params|global_model)(?:\..*)?", "the network"),
    (r"personali[sz]ed_.*", "the client's own network"),
    (r"current_model_state.*", "the network beside its average"),
    (r".*(?:^|[._])(?:ema|swa|averaged?|average_model)(?:[._].*)?", "an average"),
    (r".*(?:best|optimal).*", "the best until then"),
    (r"callbacks\..*", "a callback's copy"),
    (r".*", "another"),
)


def described(places: Collection[str]) -> tuple[list[str], str]:
    """Return the places in the order in which they are suggested, and a text that says what each is."""
    ranks = {
        place: next(n for n, (form, _) in enumerate(_KINDS) if re.fullmatch(form, place)) for place in places
    }
    order = sorted(places, key=lambda place: (ranks[place], place))
    averaged = any(
        place.startswith("current_model_state") for place in places
    )  # as Lightning's callback leaves them
    said = {place: _KINDS[rank][1] for place, rank in ranks.items()}
    said |= {place: "the average" for place in places if averaged and place.startswith("state_dict")}
    return order, ", ".join(f"{place} ({said[place]})" for place in order)
