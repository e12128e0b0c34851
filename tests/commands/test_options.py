"""Every option is shown with its meaning, default and range, from where it is declared."""

import re

import pytest
import tiny

from sao.cli.main import main
from sao.config import Config
from sao.config.help import option_lines
from sao.config.overrides import every_option
from sao.methods import ENCODERS, METHODS


def shown(capsys, *arguments: str) -> str:
    return tiny.said(capsys, "options", *arguments)


def test_no_option_is_without_a_meaning():
    rows = list(option_lines(Config, ""))
    for kind, members in (("method", METHODS), ("encoder", ENCODERS)):
        for member in members.values():
            rows += option_lines(member, f"{kind}.")
    assert [name for name, _, meaning in rows if not meaning] == []
    named = {name for name, _, _ in rows}
    assert {name for name in every_option(Config) if not name.endswith(".name")} <= named
    assert not [kind for _, kind, _ in rows if re.search(r"typing|Annotated|class '", kind)]


def test_groups_have_kinds_ranges_and_defaults(capsys):
    text = shown(capsys, "train")
    assert "--train.batch  (whole number from 2; default: 256)" in text
    assert "    samples in a step, over all processes" in text
    assert "--train.epochs  (whole number from 1, or null; default: null)" in text
    assert "--train.schedule  (one of constant, cosine; default: constant)" in text
    assert "--data.held_out  (number above 0 below 1; default: 0.1)" in shown(capsys, "data")
    assert "--data.size" not in text


@pytest.mark.parametrize("word", ["byol" if "byol" in METHODS else "simclr", "method.structural", "ddpm"])
def test_a_method_shows_its_own_options(word, capsys):
    text = shown(capsys, word)
    own = METHODS[word.removeprefix("method.")]
    for name in own.model_fields.keys() - {"name"}:
        assert f"--method.{name}  (" in text
    assert "--method." in text
    assert "--train." not in text


def test_a_name_of_both_kinds_shows_both(capsys):
    text = shown(capsys, "biggan")
    assert "--method biggan:" in text
    assert "--encoder biggan:" in text
    assert "--encoder.width  (whole number from 1; default: 256)" in text
    assert "--encoder biggan:" not in shown(capsys, "method.biggan")


def test_defaults_inside_a_group_are_those_of_the_group(capsys):
    """The discriminator's weight decay is another than the generator's, though both are AdamW."""
    text = shown(capsys, "structural")
    assert "--method.discriminator_optimiser.weight_decay  (number from 0; default: 0.1)" in text
    assert "--method.generator_optimiser.weight_decay  (number from 0; default: 0.0)" in text


def test_one_option_by_its_name(capsys):
    assert shown(capsys, "log.keep").startswith("--log.keep  (whole number from 1; default: 2)")


def test_without_a_group_everything_is_listed(capsys):
    text = shown(capsys)
    for name in (*METHODS, *ENCODERS, *Config.model_fields):
        assert re.search(rf"^ *{name} ", text, re.MULTILINE), name


def test_help_says_where_the_options_are(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    assert "`sao options` lists them" in " ".join(capsys.readouterr().out.split())


def test_a_wrong_group_is_one_line(capsys):
    assert "there is no group of options 'trian' (did you mean train?)" in tiny.refused(capsys, "options", "trian")
