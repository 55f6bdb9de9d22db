"""Whether a run can be continued: only fedscope's own, not diverged, with the settings it was begun with."""

from fedscope.checkpoints.file.schema import Manifest
from fedscope.errors import UserError


def check_continues(old: Manifest, new: Manifest) -> None:
    if old.added:
        raise UserError(f"{old.name!r} was trained by another program and cannot be continued by this one")
    if old.diverged:
        raise UserError(
            f"{old.name!r} diverged in round {old.diverged} and cannot be continued; train it anew with a "
            f"lower --lr, under another --name or after `fedscope runs delete {old.name}`"
        )
    begun = old.settings
    if begun.rounds < new.settings.rounds:
        if new.settings.shift != "none":
            raise UserError(
                f"{old.name!r} has concept shifts, drawn for all rounds at once; use another --name"
            )
        if new.settings.lr_schedule == "cosine":
            raise UserError(f"{old.name!r} has a rate that falls over all of its rounds; use another --name")
        begun = begun.model_copy(update={"rounds": new.settings.rounds})
    sections = (
        ("settings", begun, new.settings), ("model", old.model, new.model), ("data", old.data, new.data),
    )  # fmt: skip
    for section, before, now in sections:
        changed = [
            f"{name} {getattr(before, name)} → {getattr(now, name)}"
            for name in type(before).model_fields
            if name != "source" and getattr(before, name) != getattr(now, name)
        ]
        if changed:
            raise UserError(
                f"cannot resume {old.name!r} with other {section}: {'; '.join(changed)}; use another --name"
            )
