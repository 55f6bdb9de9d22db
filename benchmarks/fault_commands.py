"""The commands that the trials of `faults.py` give, and what must come of the unfinished run."""

from fault_scene import HESSIAN, METHODS, TRAIN, Scene

NAMED = ("--model", "mlp_digits", "--dataset", "digits")
SMALL = ("--samples", "20", "--grid", "3", "--directions", "random")
RESUME = ("train", "--name", "b", "--resume")


def adding(scene: Scene) -> list[tuple[str, ...]]:
    """Return the commands that add checkpoints or results to the registry."""
    return [
        RESUME,
        ("train", "--name", "new", *TRAIN, *METHODS[scene.draw.choice(list(METHODS))]),
        ("runs", "pull", "a", f"file:{scene.clean.remote}", "--name", "p"),
        ("runs", "add", str(scene.clean.weights), "--name", "d", *NAMED),
        HESSIAN,
    ]


def write(scene: Scene) -> tuple[str, ...]:
    """Return a command that writes, drawn at random."""
    return scene.draw.choice(
        [
            *adding(scene),
            ("runs", "tag", "a", "seen"),
            ("runs", "delete", "c", "--yes"),
            ("runs", "delete", "a", "--clients", "--yes"),
            ("runs", "rebuild"),
            ("runs", "list"),
            ("runs", "export", "a", "--format", "safetensors", "--out", str(scene.out / "a.safetensors")),
            ("runs", "push", "a", f"file:{scene.out}/remote"),
            ("plot-landscape", "a", *SMALL, "--out", str(scene.out / "a.png")),
            ("report", "a", "--no-compute", "--out", str(scene.out / "a.html")),
        ]
    )


def finish(scene: Scene) -> None:
    """Bring the unfinished run to its end, and compare its bits."""
    done = scene.call(*RESUME)
    if done.code:
        scene.wrong(f"b is not to be resumed: {done.err[-300:]}")
    scene.expect_bits("b", "b")
    scene.expect_sound("a", "b")
