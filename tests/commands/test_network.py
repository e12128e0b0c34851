"""Nothing leaves the machine: no command looks up a name or connects to an address outside of it."""

import os
import subprocess
import sys
from pathlib import Path

import tiny

from sao.cli.main import build_parser

# Imported by every Python that starts with this folder on its path, worker processes too.
WATCH = """
import ipaddress, os, sys

def refuse(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg") and isinstance(arguments[1], tuple):
        host = arguments[1][0]
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        host = arguments[0]
    else:
        return
    host = host.decode() if isinstance(host, bytes) else host
    try:
        outside = host not in (None, "", "localhost") and not ipaddress.ip_address(host).is_loopback
    except ValueError:
        outside = True
    if outside:
        with open(os.environ["SEEN"], "a") as seen:
            seen.write(f"{event} {host}\\n")
        raise PermissionError(f"{event} {host}")

sys.addaudithook(refuse)
"""


def requests_of(folder: Path, script: str) -> str:
    """The requests that a Python script makes of the network."""
    (folder / "sitecustomize.py").write_text(WATCH)
    seen = folder / "seen"
    path = os.pathsep.join([str(folder), str(Path(__file__).parents[2]), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "SEEN": str(seen)}
    ended = subprocess.run([sys.executable, "-c", script], env=environment, cwd=folder, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return seen.read_text() if seen.exists() else ""


def test_a_request_is_seen(tmp_path):
    script = """
import urllib.request
try:
    urllib.request.urlopen("http://example.invalid/")
except OSError:  # urllib wraps the refusal
    pass
"""
    assert "example.invalid" in requests_of(tmp_path, script)


def test_no_command_asks_the_network_for_anything(tmp_path):
    tiny.draw_pictures(tmp_path / "pictures", 40)
    small = tiny.words()
    narrow = ["--encoder.widths", "[4, 8]", "--method.generator.width", "4", "--data.size", "8", "--data.held_out", "0.5"]
    libraries = ("simclr", "mae", "ddpm")  # of lightly, timm and diffusers, which know hubs of weights
    commands = [
        ["train", "--data", "pictures", "--out", "run", "--data.size", "8", *small],
        *(["train", "digits", "--out", name, *tiny.words(method=name, log__report=False)] for name in libraries),
        ["train", "digits", "--out", "tracked", *tiny.words(log__to="tensorboard,mlflow", log__report=False)],
        ["sweep", "digits", "--seeds", "0,1", "--out", "swept", *tiny.words(method="random", train__steps=1)],
        ["resume", "run", "--train.steps", "9"],
        ["eval", "run"],
        ["embed", "run", "pictures", "-o", "features.npz"],
        ["cluster", "run", "pictures", "-k", "3", "-o", "clusters"],
        ["search", "run", "pictures", "--in", "pictures", "-k", "3", "-o", "neighbours"],
        ["duplicates", "pictures", "-o", "duplicates"],
        ["sample", "run", "-o", "samples.png"],
        ["export", "run", "-o", "plain"],
        ["ship", "run", "-o", "shared", "--licence", "Apache-2.0"],
        ["report", "run"],
        ["explore", "pictures", "-o", "explored"],
        ["presets"],
        ["options"],
        ["bench", "digits", "--steps", "1", "--no-literal", *small],
        ["reproduce", "compare", "--data", "pictures", "--rows", "ours", "--steps", "2", "--jobs", "1", *narrow],
        ["cache"],
        ["doctor"],
    ]
    (known,) = (action.choices for action in build_parser()._actions if isinstance(action.choices, dict))
    assert {words[0] for words in commands} == set(known), "every command is here"
    script = f"""
from sao.benchmark import measure
from sao.cli.main import main
fastest = measure._fastest
measure._fastest = lambda function, seconds: fastest(function, 0.01)  # what the processor can do takes seconds to see
for words in {commands!r}:
    code = main(words)
    assert code == 0, (words, code)
"""
    assert requests_of(tmp_path, script) == ""
