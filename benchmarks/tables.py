"""A group's result as a Markdown table."""

from typing import Any


def table(outcome: dict[str, Any]) -> str:
    """Return a group's result as Markdown; the last columns say how fast fedscope is relative to a row."""
    ours = list(outcome["speedups"])
    heads = ["contestant", "samples/s", "s per round", "range", *(f"{name} is" for name in ours)]
    lines = [
        f"\n### {outcome['title']}\n",
        f"{described(outcome)}\n",
        row(heads),
        row(["---", *["---:"] * (len(heads) - 1)]),
    ]
    for name, result in outcome["contestants"].items():
        times = [turn["seconds"] / turn["rounds"] for turn in result["turns"]]
        numbers = [
            f"{result['samples_per_second']:,.0f}",
            f"{result['seconds_per_round']:.4g}",
            f"{min(times):.4g}-{max(times):.4g}",
        ]
        speeds = [f"× {outcome['speedups'][mine][name]:.2f}" if mine != name else "" for mine in ours]
        lines.append(row([name, *numbers, *speeds]))
    return "\n".join(lines)


def described(outcome: dict[str, Any]) -> str:
    """Return a sentence on the work of a round."""
    settings, work = outcome["settings"], outcome["work"]
    return (
        f"A round: {work['cohort']} of {settings['clients']:,} clients with {work['samples_per_client']} "
        f"samples, {settings['epochs']} epochs in batches of {settings['batch_size']}, then "
        f"{work['test_samples']:,} test samples; {work['rounds']} rounds after the warm-up."
    )


def row(cells: list[str]) -> str:
    """Return a line of a Markdown table."""
    return f"| {' | '.join(cells)} |"
