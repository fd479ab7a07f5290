"""python -m duet ... runs the command, with its own output and exit status, or `convert`."""

import os
import sys

from ._library import DuetError, find


def main():
    if sys.argv[1:2] == ["convert"]:
        from .convert import main as convert
        sys.exit(convert(sys.argv[2:]))
    try:
        command = find("duet")
    except DuetError as error:
        sys.exit(f"duet: {error}")
    os.execv(command, ["duet", *sys.argv[1:]])


if __name__ == "__main__":
    main()
