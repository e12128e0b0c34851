"""sao eval: every metric that the data allows, with its protocol, as a table and as JSON; ends in one plain sentence."""

from argparse import Namespace
from pathlib import Path

from sao.errors import InputError

GENERATION = ("is", "fid", "kid", "precision", "recall", "memorised")


def run(arguments: Namespace) -> None:
    if (arguments.run is None) == (arguments.features is None):
        raise InputError("give a run, or --features F.npz, one of the two")
    names = None if arguments.metrics is None else [name.strip() for name in arguments.metrics.split(",") if name.strip()]
    if arguments.features is not None:
        _evaluate_file(Path(arguments.features), names, arguments)
    else:
        _evaluate_run(Path(arguments.run), names, arguments)


def _evaluate_file(path: Path, names: list[str] | None, arguments: Namespace) -> None:
    from sao.evaluation import as_table, evaluate, load_features, write_json

    train, test = load_features(path)
    metrics = evaluate(train, test, names, seed=arguments.seed)
    print(as_table(metrics))
    if arguments.output is not None:
        write_json(arguments.output, metrics)
        print(f"with protocols in {arguments.output}")


def _evaluate_run(folder: Path, names: list[str] | None, arguments: Namespace) -> None:
    import sao
    from sao.commands.training import open_config_data
    from sao.engine.run import Run
    from sao.evaluation import as_table, evaluate, write_json

    run, model = Run.open(folder), sao.load(folder, weights=arguments.weights)
    dataset = open_config_data(model.config).dataset
    asked_generation = None if names is None else [name for name in names if name in GENERATION]
    asked_features = None if names is None else [name for name in names if name not in GENERATION]
    metrics, sentence = [], ""
    facts = {"feature": arguments.feature, "weights": arguments.weights, "run": str(folder), "step": model.step}
    if asked_features is None or asked_features:
        train, test = _features(model, dataset, arguments.feature, facts)
        metrics += evaluate(train, test, asked_features, seed=arguments.seed)
        if names is None:
            verdict = _verdict(model, dataset, train, test, arguments.seed)
            metrics += [m for m in verdict.metrics if "/" in m.name]  # the references; ours are there already
            sentence = verdict.sentence
    if asked_generation or (names is None and arguments.samples is not None):
        metrics += _generation(model, dataset, asked_generation, arguments, facts)
    print(as_table(metrics))
    target = Path(arguments.output or run.evaluations / f"step-{model.step:08d}-{arguments.feature}-{arguments.weights}.json")
    write_json(target, metrics)
    print(f"with protocols in {target}")
    if sentence:
        print(sentence)


def _features(model, dataset, feature: str, facts: dict):
    from sao.evaluation import Features

    parts = (("train", dataset.train), ("test", dataset.test))
    return [Features(model.embed(part, feature), part.labels, {**facts, "split": name}) for name, part in parts]


def _verdict(model, dataset, train, test, seed: int):
    from sao.engine.features import extract, raw_inputs
    from sao.evaluation import judge
    from sao.methods import build_method

    facts = model.facts
    untrained = build_method(model.config, facts.shape, facts.samples, facts.classes).to(model.device)
    pairs = [(raw_inputs(dataset.train), raw_inputs(dataset.test))]
    pairs.append(
        (extract(untrained.features, dataset.train, model.device), extract(untrained.features, dataset.test, model.device))
    )
    return judge(train, test, raw=pairs[0], untrained=pairs[1], seed=seed)


def _generation(model, dataset, names: list[str] | None, arguments: Namespace, facts: dict):
    """Generated samples against as many held-out ones, and against the training part for copies."""
    from sao.data.samples import Images
    from sao.evaluation import evaluate_generation, memorised

    count = arguments.samples or min(10_000, len(dataset.test))
    drawn = model.sample(count, arguments.seed)
    metrics = []
    wanted = set(names or GENERATION)
    if isinstance(dataset.test, Images):
        if wanted - {"memorised"}:
            found = evaluate_generation(dataset.test.pixels[:count], drawn, seed=arguments.seed)
            metrics += [metric for metric in found if metric.name.split("_")[0] in wanted]
        if "memorised" in wanted:
            metrics.append(memorised(drawn, dataset.train.pixels).share)
    elif wanted == {"memorised"} or names is None:
        metrics.append(memorised(drawn, dataset.train.rows).share)
    else:
        raise InputError("vectors have no image metrics: of the generation metrics only memorised applies")
    return [
        metric.with_protocol({"weights": facts["weights"], "run": facts["run"], "step": facts["step"]}) for metric in metrics
    ]
