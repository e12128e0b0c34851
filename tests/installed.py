"""What must work where nothing but the wheel and its own dependencies is installed: `python -I tests/installed.py FOLDER`.

It is run by `make wheel` in a new environment, and by tests/test_wheel.py in one that has links to the packages that the
wheel asks for. It knows nothing of the repository around it.
"""

import contextlib
import importlib.util
import io
import os
import sys
from pathlib import Path

SMALL = {
    "encoder.widths": "[4, 8]",
    "method.embedding_size": "8",
    "method.generator.width": "4",
    "method.generator.latent_size": "8",
    "method.bank": "8",
    "train.batch": "8",
    "train.steps": "5",
    "train.threads": "1",
}
WORDS = [word for name, value in SMALL.items() for word in (f"--{name}", value)]
# A package of each extra, and commands that ask for it: what they say must name the extra.
EXTRAS = {
    "metrics": ("torch_fidelity", ["eval run --metrics fid --samples 16"]),
    "baselines": ("lightly", [f"train digits --method {name} --out no" for name in ("simclr", "mae", "ddpm")]),
    "track": ("tensorboard", ["train digits --log.to tensorboard --out no"]),
    "wandb": ("wandb", ["train digits --log.to wandb --out no"]),
    "mlflow": ("mlflow", ["train digits --log.to mlflow --out no"]),
    "tables": (
        "pyarrow",
        ["embed run digits -o features.parquet", "train --data table.parquet --out no", "train --data pictures.arrow --out no"],
    ),
    "manifold": ("umap", ["eval run --manifold umap", "report run --layout umap"]),
    "export": ("onnx", ["export run -o encoder.onnx"]),
}


def said(words: list[str]) -> tuple[int, str]:
    """The exit code of a command and what it wrote to the error stream."""
    from sao.cli.main import main

    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        code = main(words)
    return code, errors.getvalue()


def works(*words: str) -> None:
    code, errors = said(list(words))
    assert code == 0, (words, errors)


def learn_and_read() -> None:
    """Digits for five steps with the preset's own networks, then a folder of pictures."""
    import numpy as np
    from PIL import Image

    works("train", "digits", "--train.steps", "5", "--train.threads", "1", "--log.report", "false", "--out", "digits")
    draws = np.random.default_rng(0)
    Path("pictures").mkdir()
    for index in range(40):
        Image.fromarray(draws.integers(0, 256, (9, 9, 3), dtype=np.uint8)).save(f"pictures/{index}.png")
    works("train", "--data", "pictures", "--data.size", "8", "--out", "run", *WORDS)
    assert Path("run/report.html").stat().st_size > 10_000, "the page of the report is not in the wheel"
    works("embed", "run", "pictures", "-o", "features.csv")
    assert len(Path("features.csv").read_text().splitlines()) == 41
    works("sample", "run", "-n", "4", "-o", "samples.png")
    works("export", "run", "-o", "plain")


def use_shipped_models() -> None:
    """By name: features of a folder, and generated samples."""
    import numpy as np

    import sao

    works("embed", "mnist16", "pictures", "-o", "shipped.npz")
    features = np.load("shipped.npz")["features"]
    assert features.shape[0] == 40
    assert np.isfinite(features).all()
    works("sample", "mnist16", "-n", "4", "-o", "digits.png")
    assert sao.load("mnist16").sample(3).shape == (3, 16, 16, 1)


def name_missing_extras() -> None:
    Path("table.parquet").write_bytes(b"PAR1")
    Path("pictures.arrow").write_bytes(b"ARROW1")
    for extra, (package, commands) in EXTRAS.items():
        if importlib.util.find_spec(package) is not None:
            raise SystemExit(f"{package} is installed here: this is no environment without extras")
        for words in commands:
            code, errors = said(words.split())
            assert code == 2, (words, code, errors)
            assert len(errors.strip().splitlines()) == 1, (words, errors)
            assert f"pip install 'sao[{extra}]'" in errors, (words, errors)
            assert not Path("no").exists(), words


def main() -> None:
    os.chdir(sys.argv[1])
    import sao

    assert Path(str(sao.__file__)).is_relative_to(sys.prefix), f"sao is not the installed one: {sao.__file__}"
    learn_and_read()
    use_shipped_models()
    name_missing_extras()
    print(f"sao {sao.__version__}: installed without extras, it trains, reads a folder and names what it lacks")


if __name__ == "__main__":
    main()
