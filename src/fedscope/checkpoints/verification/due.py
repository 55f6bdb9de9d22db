"""Which files a run must have by its manifest and metrics."""

from collections.abc import Collection

from fedscope.checkpoints.file import layout
from fedscope.checkpoints.file.kept_steps import KeptSteps
from fedscope.checkpoints.verification.account import METRICS, Account


def expected(account: Account, names: Collection[str]) -> set[str]:
    """Return the files that must be there by the metrics; the newest model is written after its line."""
    settings, done = account.settings, account.done
    states = {name.rpartition("/")[0] for name in names if layout.kind(name) == "state"}
    needed = {f"{state}/{file}" for state in states for file in ("state.json", "clients.f32")}
    if not account.whole:
        return needed
    if not done:
        return needed | ({METRICS} if "final.pt" in names else set())
    if settings.keep_every:
        needed |= {f"round-{r:04d}.pt" for r in range(settings.keep_every, done + 1, settings.keep_every)}
    if done > 1 and not {"final.pt", "last.pt"} & set(names):
        needed.add("final.pt" if done == settings.rounds and not account.manifest.diverged else "last.pt")
    if account.best:
        needed.add("best.pt")
    if settings.eval_model != "cld" and account.trained:
        needed.add(f"{settings.eval_model}.pt")
    needed |= _beside(account) | _inside(account) | _to_go_on(account)
    if settings.save_clients != "none" and not account.manifest.clients_deleted:
        for record in account.rounds:
            needed |= {f"clients/{client:04d}.pt" for client in record.clients}
            if settings.save_clients == "all":
                needed |= {f"round-{record.round:04d}/clients/{k:04d}.pt" for k in record.clients}
    return needed - account.manifest.checkpoints_deleted.keys()


def _beside(account: Account) -> set[str]:
    """Return the files beside models and uploads of a run that stores its clients' rows, as new ones do."""
    settings, rounds = account.settings, account.rounds
    fresh = any(record.rows for record in rounds)
    if not (account.manifest.rows or fresh):
        return set()
    needed = {"initial.pt"} | (set() if fresh else {"rows.zz"})
    if settings.eval_model != "cld" and settings.keep_every:
        kept = range(settings.keep_every, account.done + 1, settings.keep_every)
        needed |= {f"round-{round:04d}/{mean}.pt" for round in kept for mean in ("all", "sel")}
    if settings.save_clients == "none" or account.manifest.clients_deleted:
        return needed
    last = account.last_rounds.values()
    uploaded = {record.round for record in rounds} if settings.save_clients == "all" else set(last)
    needed |= {f"round-{round:04d}/anchor.pt" for round in uploaded}
    return needed | ({f"round-{round:04d}/rows.zz" for round in uploaded} if fresh else set())


def _to_go_on(account: Account) -> set[str]:
    if account.ended or not account.trained:
        return set()
    kinds = ["state"] if account.manifest.remembers else []
    kinds += ["latest"] if account.settings.eval_model != "cld" else []
    return {f"{kind}/round-{account.done:04d}/state.json" for kind in kinds}


def _inside(account: Account) -> set[str]:
    if account.manifest.clients_deleted or account.manifest.steps_deleted:
        return set()
    steps = KeptSteps.parse(account.settings.keep_steps)
    return {
        f"round-{record.round:04d}/steps/{client:04d}/{step:06d}.pt"
        for record in account.rounds
        for client, made in zip(record.clients, record.local_steps, strict=False)
        for step in steps.of(record.round, client, made)
    }
