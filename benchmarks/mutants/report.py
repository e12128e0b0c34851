"""What was found, as results/mutants.md has it: a table of files, and every survivor with the reason why it may live."""

from pathlib import Path

import yaml
from changes import Mutant

REASONS = Path(__file__).with_name("survivors.yaml")  # key of a mutant: why no test can, or need, notice it


def written(chosen: dict[str, list[Mutant]], found: dict[str, dict]) -> str:
    reasons: dict[str, str] = yaml.safe_load(REASONS.read_text(encoding="utf-8")) or {}
    lines = ["| file | tried | noticed | equivalent | missed | noticed of those that are not equivalent |", "|" + 6 * "---|"]
    sums = [0, 0, 0, 0]
    survivors: list[Mutant] = []
    for file, mutants in chosen.items():
        tried = [mutant for mutant in mutants if mutant.key in found]
        alive = [mutant for mutant in tried if found[mutant.key]["result"] == "survived"]
        equivalent = [mutant for mutant in alive if reasons.get(mutant.key, "").startswith("equivalent")]
        counts = [len(tried), len(tried) - len(alive), len(equivalent), len(alive) - len(equivalent)]
        sums = [one + other for one, other in zip(sums, counts, strict=True)]
        lines.append(_row(f"`{file}`", counts))
        survivors += alive
    lines += [_row("all", sums), "", "## Survivors", ""]
    for mutant in survivors:
        lines.append(f"- `{mutant.file}` line {mutant.line}, `{mutant.function}`: `{mutant.before}` → `{mutant.after}`")
        lines.append(f"  {reasons.get(mutant.key, 'no reason is known: a test is missing')}")
    missing = sum(mutant.key not in found for mutants in chosen.values() for mutant in mutants)
    if missing:
        lines += ["", f"{missing} of the chosen mutants have not been tried yet."]
    return "\n".join(lines)


def _row(name: str, counts: list[int]) -> str:
    tried, noticed, equivalent, missed = counts
    share = f"{100 * noticed / (tried - equivalent):.1f} %" if tried > equivalent else ""
    return f"| {name} | {tried} | {noticed} | {equivalent} | {missed} | {share} |"
