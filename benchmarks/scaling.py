"""How a training step grows with batch, width, bank and image size, and what dominates it: a table for results/speed.md.

python benchmarks/scaling.py [--preset cifar10] [--steps 3]
"""

import argparse
from collections.abc import Iterator

from sao.config import Config, load_preset
from sao.runtime.processor import choose_how_threads_wait, keep_freed_memory

BATCH = 16  # of every series but that of the batch


def series(preset: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """(what is varied, its value, the options of it)."""
    for batch in (4, 8, 16, 32, 64):
        yield "batch", str(batch), {"train.batch": str(batch)}
    for share in (4, 2, 1):
        config = load_preset(preset).model_dump()
        widths = [width // share for width in config["encoder"]["widths"] or (64, 128, 256, 512)]
        generator = config["method"]["generator"]["width"] // share
        options = {"encoder.widths": str(widths), "method.generator.width": str(generator)}
        yield "width", f"D {widths[-1]}, G {generator}", options
    for bank in (1024, 10240, 40960):
        yield "bank", str(bank), {"method.bank": str(bank)}
    for size in (16, 32, 64):
        yield "image size", f"{size}x{size}", {"data.size": str(size)}


def row(name: str, value: str, config: Config, steps: int) -> str:
    from sao.cli.bench import for_data, measure

    found = measure(*for_data(config), steps, literal=False)
    seconds, total = found["seconds"]["median"], sum(found["phases"].values())
    largest = sorted(found["phases"].items(), key=lambda item: -item[1])[:3]
    shares = ", ".join(f"{phase} {100 * spent / total:.0f} %" for phase, spent in largest)
    rate = f"{found['tflop'] / seconds * 1e3:.0f}"
    return (
        f"| {name} | {value} | {seconds:.2f} | {found['images_per_second']:.1f} | {found['peak_gb']:.2f} | {rate} "
        f"| {found['embedding']['images_per_second']:.0f} | {shares} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="cifar10")
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()
    choose_how_threads_wait()
    keep_freed_memory()
    print("| varied | value | step (s) | images/s | peak GB | GFLOP/s | embedding, images/s | largest phases |")
    print("|---|---|---|---|---|---|---|---|")
    for name, value, options in series(arguments.preset):
        config = load_preset(arguments.preset, {"train.batch": str(BATCH), **options})
        print(row(name, value, config, arguments.steps), flush=True)


if __name__ == "__main__":
    main()
