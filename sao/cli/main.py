"""The command line: which commands there are and what they take. What they do is imported when one is called."""

import argparse
import ctypes
import importlib
import os
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from sao import __version__
from sao.errors import InputError, printable

EPILOG = """\
first steps:
  sao explore FOLDER                   look at a folder of images: map, groups, duplicates, odd ones
  sao train                            learn from the digits inside scikit-learn, in a few minutes
  sao train --data FOLDER --out RUN    learn from your own images, arrays or tables
  sao embed RUN DATA -o features.npz   use what was learnt
"""


class Parser(argparse.ArgumentParser):
    """One line for an error, exit code 2."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; `{self.prog} --help` shows what it takes")


MANIFOLDS = ("spectral", "umap")
RUN = "folder of a trained run"
DATA = "a path or a data set's name, as for sao train --data"
LABELS = "a table of name,label: labels by the path inside the folder, or by a file name that is there once"
CHANNELS = "which are shown as red, green and blue, from 1, such as 3,2,1 (default: the first three; one or two: grey)"
SEED = "of what is drawn at random (default: 0)"
FEATURE = "backbone: what the network learnt (the default); embedding: what the objective sees"
FEATURES = ("backbone", "embedding", "layers")
LAYERS = f"{FEATURE}; layers: the maps on the way too"
AddCommand = Callable[..., Parser]  # (name, summary, options: whether it takes those of the configuration)


def build_parser() -> Parser:
    parser = Parser(
        prog="sao", description=__doc__ and "Representations without labels and without augmented views.", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"sao {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=Parser)

    def command(name: str, summary: str, options: bool = False) -> Parser:
        added = commands.add_parser(name, help=summary, description=summary, allow_abbrev=False)
        added.set_defaults(takes_options=options, computes=True)
        added.add_argument(
            "--code",
            metavar="FILE.py",
            action="append",
            help="a file of your own with a method, an encoder or data",
        )
        if options:
            added.epilog = (
                "Every option of the configuration is a flag too, for example --train.batch 64. `sao options` lists them, "
                "`sao options train` shows the meaning, default and range of each."
            )
        return added

    _add_learning(command)
    _add_use(command)
    _add_study(command)
    return parser


def _add_learning(command: AddCommand) -> None:
    train = command("train", "learn a representation, and a generator beside it", options=True)
    train.add_argument("preset", nargs="?", default=None, help="a name from `sao presets`, or a .yaml file (default: digits)")
    train.add_argument(
        "--data",
        dest="source",
        help="a folder or archive of images, .txt of paths, .npy, .npz, .csv, .parquet, .arrow, or a data set's name",
    )
    train.add_argument("--out", help="folder of the run (default: runs/PRESET)")
    train.add_argument("--overwrite", action="store_true", help="replace a run that is there")
    train.add_argument("--auto", action="store_true", help="choose networks and batch for the data (the default with --data)")
    train.add_argument(
        "--start-from", metavar="NAME|RUN", help="begin with the weights of a run, or of a model that comes with sao"
    )
    train.add_argument("--labels", metavar="L.csv", help=LABELS)
    train.add_argument("--no-labels", action="store_true", help="do not look at labels, not even for evaluation")
    train.add_argument("--strict", action="store_true", help="stop at the first unreadable item")
    train.add_argument("--keep", help="how many checkpoints to keep")
    train.add_argument("--why", action="store_true", help="print what was found in the data, and the reason of each choice")
    train.add_argument("--dry-run", action="store_true", help="make two steps and price the whole run on this machine")

    resume = command("resume", "go on with a run that was stopped or killed, or for longer", options=True)
    resume.add_argument("run", metavar="RUN", help=RUN)
    resume.add_argument("--data", dest="source", help="where the data of the run is now, if it was moved")

    presets = command("presets", "list the presets, or show one with every option")
    presets.add_argument("name", nargs="?", help="one of them (default: the list)")
    presets.set_defaults(computes=False)

    options = command("options", "what can be set: every option with its meaning, default and range")
    options.add_argument("group", metavar="GROUP", nargs="?", help="data, train, log, method, encoder, or the name of a method")
    options.set_defaults(computes=False)


def _add_use(command: AddCommand) -> None:
    """Of what was learnt."""
    evaluate = command("eval", "evaluate a run, or a file of features from any other library")
    evaluate.add_argument("run", metavar="RUN", nargs="?", help=RUN)
    evaluate.add_argument("--features", metavar="F.npz", help="x_train, y_train, x_test, y_test instead of a run")
    evaluate.add_argument("--data", help="other labelled data than the run's, prepared as the run's was")
    evaluate.add_argument("--labels", metavar="L.csv", help=LABELS)
    evaluate.add_argument("--rows", default="10000", help="at most so many samples of each split, or all (default: 10000)")
    evaluate.add_argument("--budget", default="10", help="minutes for the metrics, or none (default: 10)")
    evaluate.add_argument("--metrics", help="comma-separated names (default: all that the data allows)")
    evaluate.add_argument("--feature", choices=FEATURES, default="backbone", help=LAYERS)
    evaluate.add_argument(
        "--manifold",
        choices=MANIFOLDS,
        default="spectral",
        help="how clusters along the manifold are found (default: spectral)",
    )
    evaluate.add_argument(
        "--weights",
        choices=("ema", "raw"),
        default="ema",
        help="EMA weights, or as trained (default: ema)",
    )
    evaluate.add_argument(
        "--pretrained",
        metavar="NAME",
        help="network to compare with: efficientnet_lite0, timm:NAME if its weights are here, or none (default: "
        "efficientnet_lite0 for colour images of at least 32x32 if it is installed)",
    )
    evaluate.add_argument("--samples", type=int, default=None, help="generated samples for generation metrics")
    evaluate.add_argument("--inception", metavar="FILE", help="the standard weights for IS and FID, or: download")
    evaluate.add_argument("--seed", type=int, default=0, help=SEED)
    evaluate.add_argument("-o", "--output", help="JSON file (default: RUN/eval/…); metrics are added to those in it")
    evaluate.add_argument("--verbose", action="store_true", help="print each metric's protocol")

    embed = command("embed", "write features of data to .npz, .csv or .parquet")
    embed.add_argument("run", metavar="RUN", help=RUN)
    embed.add_argument("data", metavar="DATA", help=DATA)
    embed.add_argument("-o", "--output", required=True, help="NAME.npz, NAME.csv or NAME.parquet")
    embed.add_argument("--feature", choices=FEATURES, default="backbone", help=LAYERS)

    cluster = command("cluster", "group data, and show each group's most central images")
    cluster.add_argument("run", metavar="RUN", nargs="?", help=RUN)
    cluster.add_argument("data", metavar="DATA", nargs="?", help=DATA)
    cluster.add_argument("--features", metavar="F.npz", dest="features", help="features and names, instead of RUN and DATA")
    cluster.add_argument("-k", required=True, help="number of clusters, or auto to have one proposed")
    cluster.add_argument("--feature", choices=FEATURES, default="backbone", help=LAYERS)
    cluster.add_argument("--manifold", choices=MANIFOLDS, help="clusters along the manifold instead of k-means")
    cluster.add_argument("-o", "--output", required=True, help="folder for assignments.csv and pictures")
    cluster.add_argument(
        "--names", metavar="L.csv", help="a table of name,label: a group is called what most of its members are"
    )
    cluster.add_argument("--copy-to", metavar="DIR", help="copy the images into a folder for each group")
    cluster.add_argument("--link", action="store_true", help="with --copy-to: links instead of copies")
    cluster.add_argument("--seed", type=int, default=0, help=SEED)

    search = command("search", "the images of a folder that are most like one or many others")
    search.add_argument("run", metavar="RUN", help="folder of a trained run, or the name of a model that comes with sao")
    search.add_argument("queries", metavar="QUERY", nargs="+", help="images, or folders of them")
    search.add_argument("--in", dest="gallery", required=True, metavar="DATA", help=f"where to search: {DATA}")
    search.add_argument("-k", type=int, default=20, help="neighbours of each query (default: 20)")
    search.add_argument("--feature", choices=FEATURES, default="backbone", help=LAYERS)
    search.add_argument("-o", "--output", help="folder for neighbours.csv and neighbours.png (default: none are written)")

    duplicates = command("duplicates", "groups of equal and near-equal images, and which to keep; changes none of them")
    duplicates.add_argument("folder", metavar="FOLDER", nargs="?", help="a folder, an archive or a list of images")
    duplicates.add_argument(
        "--features", metavar="F.npz", help="features and names as `sao embed` writes them, instead of images"
    )
    duplicates.add_argument(
        "--model",
        metavar="NAME|RUN",
        help="whose features find candidates (default: one of sao that suits, or patches)",
    )
    duplicates.add_argument("-o", "--output", help="folder for duplicates.csv and duplicates.html (default: none are written)")

    explore = command("explore", "one HTML page of a folder of images, without training: map, groups, duplicates, odd ones")
    explore.add_argument("folder", metavar="FOLDER", help="a folder or archive of images")
    explore.add_argument("-o", "--output", metavar="DIR", help="folder for report.html (default: explored/NAME)")
    explore.add_argument(
        "--model", metavar="NAME|RUN", help="whose features are compared (default: those that suit the images)"
    )
    explore.add_argument("--channels", metavar="R,G,B", help=CHANNELS)
    explore.add_argument("--clusters", type=int, help="number of groups (default: 5 to 20, by the number of images)")

    report = command("report", "one HTML page of a run, or of several side by side: metrics, curves, samples, map, clusters")
    report.add_argument("runs", metavar="RUN", nargs="+", help="folders of trained runs")
    report.add_argument("--labels", metavar="L.csv", help=LABELS)
    report.add_argument("--channels", metavar="R,G,B", help=CHANNELS)
    report.add_argument("-o", "--output", help="HTML file (default: RUN/report.html; of several runs report.html)")
    report.add_argument("--points", type=int, default=20_000, help="samples on the page (default: all, at most 20000)")
    report.add_argument("--layout", choices=("tsne", "umap"), default="tsne", help="of the map (default: tsne)")
    report.add_argument("--clusters", type=int, help="how many (default: as many as classes, 10 without labels)")

    sample = command("sample", "generate images or vectors")
    sample.add_argument("run", metavar="RUN", help=RUN)
    sample.add_argument("-n", type=int, default=64, help="how many, at least 1 (default: 64)")
    sample.add_argument("-o", "--output", required=True, help="a picture (.png), an array (.npy) or a folder of pictures")
    sample.add_argument("--seed", type=int, default=0, help=SEED)
    sample.add_argument("--interpolate", action="store_true", help="rows that go from one latent to another")

    export = command("export", "write the encoder, or the generator, for those who do not have sao")
    export.add_argument("run", metavar="RUN", help=RUN)
    export.add_argument("-o", "--output", required=True, help="NAME.onnx, NAME.pt2 (torch.export), or a folder")
    export.add_argument("--generator", action="store_true", help="the generator instead of the encoder")
    export.add_argument("--feature", choices=FEATURES, default="backbone", help=LAYERS)
    export.add_argument("--any-size", action="store_true", help="take uint8 images of any size, and prepare them in the file")
    export.add_argument("--data", help="what to check the file on (default: held-out samples of the run)")

    ship = command("ship", "write a small copy of a run to give away: what embed, cluster and sample read, and a model card")
    ship.add_argument("run", metavar="RUN", help=RUN)
    ship.add_argument("-o", "--output", required=True, help="a new folder, which every command then takes for RUN")
    ship.add_argument("--half", action="store_true", help="keep weights in 16 bits, if features and samples stay the same")
    ship.add_argument("--licence", default="not stated", help="of the weights, for the model card (default: not stated)")
    for writer in (embed, cluster, search, duplicates, explore, sample, export):
        writer.add_argument("--overwrite", action="store_true", help="replace what an earlier command wrote to this place")


def _add_study(command: AddCommand) -> None:
    """Of the machine and of the paper."""
    bench = command("bench", "measure a training step on this machine", options=True)
    bench.add_argument("preset", nargs="?", default=None, help="a name from `sao presets`, or a .yaml file (default: digits)")
    bench.add_argument("--data", dest="source", help="your own files, and what --auto chooses for them, or a data set's name")
    bench.add_argument("--batch", help="samples a step (default: the preset's)")
    bench.add_argument("--steps", type=int, default=5, help="steps to time (default: 5)")
    bench.add_argument("--against", metavar="PRESET", help="another preset or .yaml file, timed in turns on the same shape")
    bench.add_argument(
        "--no-literal",
        action="store_true",
        help="leave out the comparison with a literal arrangement of the step, which is there for the paper's method alone",
    )
    bench.add_argument("--json", action="store_true", help="for machines instead of people")

    cache = command("cache", "show what decoded images are kept, or remove them; they are made again when they are needed")
    cache.add_argument("--clear", action="store_true", help="remove them, and nothing that sao did not write")
    cache.add_argument("--older-than", type=float, metavar="DAYS", help="with --clear: only those that were made before")
    cache.set_defaults(computes=False)

    command("doctor", "check what is installed and whether training works, with a remedy for what does not")

    reproduce = command("reproduce", "a table or figure of the paper, from training to the file", options=True)
    reproduce.add_argument(
        "target",
        metavar="TARGET",
        help="figure1: features of self-supervised systems, drawn; figure2: the double spirals, six panels and their numbers; "
        "table1: self-supervised systems; table2: augmentations; table3: clusters; table4: the objectives; "
        "table5: learning from a generator; samples: those of the appendix; "
        "compare: ours beside the two-view learners on your own images",
    )
    reproduce.add_argument("--out", help="folder for runs and results (default: runs/TARGET, for tables runs/TARGET-SCALE)")
    reproduce.add_argument("--seeds", default="0", help="for example 0,1,2; the first one is drawn (default: 0)")
    reproduce.add_argument("--controls", action="store_true", help="figure2: train every control too, for the table")
    reproduce.add_argument("--steps", type=int, help="steps of each run (default: the preset's)")
    reproduce.add_argument(
        "--jobs", type=int, help="runs at a time (default: one for each GPU, else for each core; one of --scale paper)"
    )
    reproduce.add_argument("--scale", choices=("cpu", "paper"), help="tables: what a processor can do, or the paper's settings")
    reproduce.add_argument("--data", help="tables: data sets, for example fashion_mnist,cifar10; compare: a path")
    reproduce.add_argument("--rows", help="tables: some of the rows, by name")
    reproduce.add_argument("--no-search", action="store_true", help="table1, figure1: take learning rates as they are")
    reproduce.add_argument(
        "--search-on", metavar="DATA", help="table1, figure1: search learning rates on this data set, and use them for all"
    )
    reproduce.add_argument(
        "--rates", metavar="FILE", help="table1, figure1: learning rates that an earlier search found, from its table1.json"
    )
    reproduce.add_argument("--runs", help="figure1: run folders to draw, with commas; with --rows beside rows of table1")
    reproduce.add_argument("--dry-run", action="store_true", help="tables: make two steps of each kind and price the study")


def keep_freed_memory() -> None:
    """Let glibc use large blocks again instead of returning them to the system, in whichever thread they were used before.

    A step allocates the same gigabytes as the step before it; to fetch every page anew took up to 80 % of an addition's time.
    The evaluation after the last step has a thread of its own: with an arena of its own it would hold its memory beside theirs.
    """
    settings = {  # numbers of malloc.h, values
        "MALLOC_MMAP_MAX_": (-4, 0),
        "MALLOC_TRIM_THRESHOLD_": (-1, 2**31 - 1),
        "MALLOC_TOP_PAD_": (-2, 2**28),
        "MALLOC_ARENA_MAX": (-8, 1),
    }
    for name, (_, value) in settings.items():
        os.environ.setdefault(name, str(value))  # of processes that this one starts
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return  # another system's allocator
    for number, value in settings.values():
        mallopt(number, value)


def choose_how_threads_wait() -> None:
    """Let them spin for about a millisecond where the cores are idle, else sleep at once; before torch is loaded.

    Alone on two cores, spinning makes small steps a quarter faster. Beside a busy program it takes the core from the thread
    it waits for. Two trainings at once were three times as slow, and without any limit ten times.
    """
    if "OMP_WAIT_POLICY" in os.environ:
        return
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    os.environ.setdefault("GOMP_SPINCOUNT", "30000" if _share_busy() < 0.25 else "0")


def _share_busy(seconds: float = 0.2) -> float:
    """Of the time of all cores, now: the load average still counts the installation that ended a minute ago.

    All of it where the system does not say.
    """
    before = _core_times()
    time.sleep(seconds)
    after = _core_times()
    if before is None or after is None or after[1] == before[1]:
        return 1.0
    return 1 - (after[0] - before[0]) / (after[1] - before[1])


def _core_times() -> tuple[int, int] | None:
    """Ticks that all cores together were idle, or waited for a disk, and ticks in all."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
        return ticks[3] + ticks[4], sum(ticks)
    except (OSError, ValueError, IndexError):
        return None


def main(arguments: list[str] | None = None) -> int:
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # what a lost process means is said in one line, without a stack
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # the profiler of sao bench says when it starts and stops, at level 5
    keep_freed_memory()
    try:
        words, options = _split_options(sys.argv[1:] if arguments is None else arguments)
        parsed, rest = build_parser().parse_known_args(words)
        if rest or (options and not parsed.takes_options):
            wrong = rest[0] if rest else f"--{next(iter(options))}"
            near = _nearest(wrong, parsed.command) if wrong.startswith("--") else ""
            name = f"sao {parsed.command}"
            raise InputError(f"{name} does not take {wrong}{near}; `{name} --help` shows what it takes")
        parsed.options = options
        if parsed.code:
            from sao.config.outside import use_file

            for path in parsed.code:
                use_file(path)
        if parsed.computes:
            choose_how_threads_wait()
        return importlib.import_module(f"sao.cli.{parsed.command}").run(parsed) or 0
    except InputError as error:
        if os.environ.get("RANK", "0") == "0":  # what is wrong before processes meet is wrong for all that torchrun started
            print(f"sao: {printable(str(error))}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("sao: interrupted", file=sys.stderr)
        return 130


def _split_options(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Take the configuration flags out: `--train.batch 64`, `--train.batch=64`, and the two without a dot."""
    others: list[str] = []
    options: dict[str, str] = {}
    rest = iter(words)
    for word in rest:
        key, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--") or not ("." in key or (key in ("seed", "method", "encoder") and words[0] == "train")):
            others.append(word)
            continue
        if not equals:
            value = next(rest, "--")
            if value.startswith("--"):
                raise InputError(f"--{key} needs a value, for example --{key}=VALUE")
        options[key] = value
    return others, options


def _nearest(flag: str, command: str) -> str:
    """ " (did you mean …?)" for a flag that a command does not have; train has every option of the configuration too."""
    import difflib

    from sao.config import Config
    from sao.config.overrides import suggestion

    subparsers = next(action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    flags = {known: known for known in subparsers.choices[command]._option_string_actions if known.startswith("--")}
    word = flag.partition("=")[0]
    if command == "train" and (meant := suggestion(Config, word)):  # train has every option of the configuration too
        return meant
    near = difflib.get_close_matches(word, flags, n=1)
    return f" (did you mean {near[0]}?)" if near else ""
