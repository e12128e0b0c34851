"""sao presets: the presets by name with their first line, or one of them with every option."""

from argparse import ArgumentParser, Namespace

from sao.config.presets import preset_names, preset_text


def add_options(parser: ArgumentParser) -> None:
    parser.set_defaults(computes=False)
    parser.add_argument("name", nargs="?", help="one of them (default: the list)")


def run(arguments: Namespace) -> None:
    if arguments.name is None:
        for name in preset_names():
            print(f"{name:12} {preset_text(name).splitlines()[0].lstrip('# ')}")
        return
    import yaml

    from sao.config import load_preset  # torch comes with it

    config = load_preset(arguments.name)
    comment = [line for line in preset_text(arguments.name).splitlines() if line.startswith("#")]
    print("\n".join(comment))
    print(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False), end="")
