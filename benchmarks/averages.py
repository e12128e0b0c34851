"""How long the moving average of the discriminator should look back: many averages of one run, each judged at its end.

python benchmarks/averages.py --out DIR [--preset fashion16] [--data mnist] [--folder DATA] [--steps 1000] [--seeds 0,1]

The lengths share the run, so that nothing else differs between them: this is what choosing the length afterwards could give.
Keys of the memory bank still come from the average that the preset has. Trained on five sixths of the training part and
judged on the rest of it. Runs are ordinary run folders in --out, and begin anew each time.
"""

import argparse
import warnings
from pathlib import Path

import torch
from settings import MANIFOLD, METRICS, held_back, judged, parser_of, table

from sao.cli import keep_freed_memory
from sao.commands.reproduce import seeds_in
from sao.config import Config, load_preset
from sao.data.dataset import Dataset
from sao.errors import InputError
from sao.methods.structural import Structural
from sao.networks.average import MovingAverage
from sao.other_runs import begin
from sao.training.device import choose_device, set_threads
from sao.training.log import Log
from sao.training.loop import Diverged, new_method, train
from sao.training.run_data import open_config_data
from sao.training.run_folder import DataFacts, Run

DECAYS = (0.0, 0.9, 0.97, 0.99, 0.997, 0.999)  # 0 is the network itself


def trained(folder: Path, config: Config, dataset: Dataset) -> tuple[Structural, dict[float, MovingAverage]]:
    method = new_method(config, dataset, choose_device(config.train.device))
    if not isinstance(method, Structural):
        raise InputError("the averages are those of the structural method: give a preset of it")
    averages = {decay: MovingAverage(method.discriminator, decay) for decay in DECAYS}
    own = method.average_discriminator.update

    def update_all(network: torch.nn.Module) -> None:
        own(network)
        for average in averages.values():
            average.update(network)

    method.average_discriminator.update = update_all
    begin(method)
    run = Run.create(folder, config, DataFacts.of(dataset), overwrite=True)
    log = Log(run.folder)
    try:
        train(run, config, dataset, method, log)
    finally:
        log.close()
    return method, averages


def measured(options: argparse.Namespace, seed: int) -> dict[str, dict[str, float]]:
    asked = {"data.folder": options.folder, "data.source": options.data, "train.steps": options.steps, "seed": seed}
    config = load_preset(options.preset, {name: str(value) for name, value in asked.items() if value is not None})
    set_threads(1)
    dataset = held_back(open_config_data(config).dataset)
    method, averages = trained(options.out / f"seed{seed}", config, dataset)
    found = {}
    for decay, average in averages.items():
        method.average_discriminator.network.load_state_dict(average.network.state_dict())
        found[f"{decay:g}"] = judged(method, dataset, (*METRICS, *MANIFOLD), seed)
    return found


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", default="0,1")
    options = parser.parse_args()
    keep_freed_memory()
    warnings.simplefilter("ignore")
    try:
        found = [measured(options, seed) for seed in seeds_in(options.seeds)]
    except (InputError, Diverged) as error:
        raise SystemExit(f"averages: {error}") from None
    print(table({("average", decay): [one[decay] for one in found] for decay in found[0]}))


if __name__ == "__main__":
    main()
