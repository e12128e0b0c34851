"""sao eval: every metric that the data allows, with its protocol, as a table and as JSON; ends in one plain sentence."""

from argparse import Namespace
from pathlib import Path

from sao.commands.output import warn
from sao.errors import InputError

GENERATION = ("is", "fid", "kid", "precision", "recall", "memorised")


def run(arguments: Namespace) -> None:
    if (arguments.run is None) == (arguments.features is None):
        raise InputError("give a run, or --features F.npz, one of the two")
    names = None if arguments.metrics is None else [name.strip() for name in arguments.metrics.split(",") if name.strip()]
    from sao import processes

    if arguments.features is not None:
        with processes.joined("cpu"):
            processes.main_only(lambda: _evaluate_file(Path(arguments.features), names, arguments))
        return
    from sao.engine.run import Run

    run, train = Run.open(Path(arguments.run)), Run.open(Path(arguments.run)).config.train
    with processes.joined(train.device, train.timeout_seconds):
        _evaluate_run(run, names, arguments)


def _evaluate_file(path: Path, names: list[str] | None, arguments: Namespace) -> None:
    from sao.evaluation import as_table, evaluate, load_features, write_json

    train, test = load_features(path)
    metrics = evaluate(train, test, names, seed=arguments.seed)
    print(as_table(metrics))
    if arguments.output is not None:
        write_json(arguments.output, metrics)
        print(f"with protocols in {arguments.output}")


def _evaluate_run(run, names: list[str] | None, arguments: Namespace) -> None:
    """Processes share the work of embedding; the metrics, which look at all features at once, are the first one's."""
    import sao
    from sao import processes
    from sao.commands.training import open_run_data

    model = sao.load(run.folder, weights=arguments.weights, report=warn)
    _, opened = open_run_data(run)
    dataset = opened.dataset
    asked_features = None if names is None else [name for name in names if name not in GENERATION]
    facts = {"feature": arguments.feature, "weights": arguments.weights, "run": str(run.folder), "step": model.step}
    features = references = None
    if asked_features is None or asked_features:
        features = _features(model, dataset, arguments.feature, facts)
        references = _references(model, dataset) if names is None else None

    def measure() -> None:
        _measure(run, model, dataset, names, arguments, facts, features, references)

    processes.main_only(measure)


def _measure(run, model, dataset, names, arguments: Namespace, facts: dict, features, references) -> None:
    from sao.evaluation import as_table, evaluate, judge, write_json

    asked_generation = None if names is None else [name for name in names if name in GENERATION]
    asked_features = None if names is None else [name for name in names if name not in GENERATION]
    metrics, sentence = [], ""
    if features is not None:
        train, test = features
        metrics += evaluate(train, test, asked_features, seed=arguments.seed)
    if features is not None and references is not None:
        verdict = judge(*features, **references, seed=arguments.seed)
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
    from sao.engine.features import extract_together
    from sao.evaluation import Features

    function = model.method.features if feature == "backbone" else model.method.embeddings
    found = []
    for name, part in (("train", dataset.train), ("test", dataset.test)):
        values = extract_together(function, part, model.device)
        found.append(Features(values, part.labels, {**facts, "split": name}))
    return found


def _references(model, dataset) -> dict:
    """(train, test) features of doing nothing: the raw inputs, and the network before training."""
    from sao.engine.features import extract_together, raw_inputs

    facts = model.facts
    untrained = model.config.build_method(facts.shape, facts.samples, facts.classes).to(model.device)
    parts = (dataset.train, dataset.test)
    return {
        "raw": tuple(raw_inputs(part) for part in parts),
        "untrained": tuple(extract_together(untrained.features, part, model.device) for part in parts),
    }


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
