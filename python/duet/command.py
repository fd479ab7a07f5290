"""The command's subcommands as functions: each runs `duet` in its own process, so its devices,
ranks and signals do not affect the caller, and reads the record that --json writes."""

import contextlib
import html
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import warnings

import numpy

from ._library import DuetError, WrongArgument, find

_WITHOUT_REPORT = {"estimate", "scale"}  # subcommands that do not write a page
_ENDS_IN = 10  # seconds that the command gets to end after Ctrl-C


class Record(dict):
    """An object of the JSON record whose members are also attributes: record.runs[0].title."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no {name} here: expected {', '.join(self)}") from None

    def __dir__(self):
        return [*super().__dir__(), *self]


class Result(Record):
    """The result of a subcommand: the record of docs/json.md. `output` is what it printed, and
    `page` is its report, as HTML."""

    def __init__(self, record, output, page):
        super().__init__(record)
        self.__dict__.update(output=output, page=page)

    def __repr__(self):
        return self.output

    def _repr_html_(self):
        if not self.page:
            return f"<pre>{html.escape(self.output)}</pre>"
        return (f'<iframe srcdoc="{html.escape(self.page, quote=True)}" width="100%" height="700" '
                'style="border: 0"></iframe>')


def _plain(value):
    """Lists of numbers become arrays; None in them (a loss that is not finite) becomes NaN."""
    if isinstance(value, dict):
        return Record((name, _plain(member)) for name, member in value.items())
    if isinstance(value, list):
        if value and all(item is None or type(item) in (int, float) for item in value):
            return numpy.array([numpy.nan if item is None else item for item in value])
        return [_plain(item) for item in value]
    return value


def _words(options):
    for name, value in options.items():
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is True or value is False:
            yield flag if value else "--no-" + flag[2:]
        else:
            several = isinstance(value, (list, tuple))
            if "\n" in str(value) or name == "dataset" and several:  # an object
                instead = ("the file that duet.save_dataset writes" if name == "dataset" else
                           'a word or a number, such as optimizer="sgd"')
                kind = type(value).__name__
                raise WrongArgument(f"{name.rstrip('_')}={kind}(...): give {instead}")
            yield f"{flag}={','.join(map(str, value)) if several else value}"


def _as_arguments(text):
    """The command's line, with --batch-size written as batch_size."""
    text = re.sub(r"duet ([a-z]+) --model ([\w.-]+)", r'duet.\1("\2")', text)
    text = re.sub(r"--no-([a-z][a-z0-9-]*)", lambda m: m[1].replace("-", "_") + "=False", text)
    text = re.sub(r"(duet [a-z]+ |(?<![\w/]))--(?!help)([a-z][a-z0-9-]*)",
                  lambda m: m[0] if m[1] else m[2].replace("-", "_"), text)
    return text.replace("unknown option", "unknown argument")


def _with_a_file(subcommand, options, folder):
    """Writes a torch.nn.Module in `model` to a file with duet.export, traced with `inputs`. Without
    named data the run uses random data and twenty steps."""
    options = {name: value for name, value in options.items() if value is not None}
    model, inputs = options.get("model"), options.pop("inputs", None)
    if isinstance(model, type) or callable(model) and not hasattr(model, "state_dict"):
        raise WrongArgument(f"model={getattr(model, '__name__', '')}: not a torch.nn.Module: give "
                            "an instance of a class whose forward computes this")
    if not hasattr(model, "state_dict"):
        if inputs is not None:
            raise WrongArgument("inputs: only for a model that is a torch.nn.Module: leave it out")
        return options
    if inputs is None:
        raise WrongArgument(f"model={type(model).__name__}(...): give an example batch of the "
                            "shape that forward takes, such as inputs=torch.randn(8, 3, 224, 224) "
                            "for images, or a file that duet.export wrote")
    from . import export
    runs = subcommand != "estimate"
    if runs and "dataset" not in options:
        warnings.warn(f"duet.{subcommand}: trains on random samples and labels: for your own, give "
                      'dataset="data.safetensors", a file that duet.save_dataset wrote',
                      stacklevel=6)
        options = {"dataset": "random", **({} if "epochs" in options else {"steps": 20}), **options}
    path = pathlib.Path(folder, re.sub(r"\W", "_", type(model).__name__) + ".duet")
    return {**options, "model": export(model, inputs, path, verify=runs)}


def _errors(process, progress):
    """Returns all that the command prints on stderr. progress: meanwhile shows its lines of losses,
    each in place of the previous one."""
    lines, width = [], 0
    try:
        for line in process.stderr:
            lines.append(line)
            if progress and " loss" in line:
                width = max(width, len(line))
                print("\r" + line.rstrip().ljust(width), end="", file=sys.stderr, flush=True)
    finally:
        if width:
            print(file=sys.stderr)
    process.wait()
    return "".join(lines)


def _end(process):
    """Ends a running command as Ctrl-C does: it writes its results so far."""
    process.send_signal(signal.SIGINT)
    try:
        process.wait(_ENDS_IN)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextlib.contextmanager
def started(subcommand, *, progress=True, **options):
    """Runs a subcommand during the block, which gets a function that waits for its Result. When the
    block ends, even by Ctrl-C, the command ends."""
    with tempfile.TemporaryDirectory() as folder:
        record, page, output = (pathlib.Path(folder, name)
                                for name in ("record.json", "page.html", "output"))
        words = [find("duet"), subcommand, *_words(_with_a_file(subcommand, options, folder)),
                 f"--json={record}"]
        if subcommand not in _WITHOUT_REPORT:
            words.append(f"--report={page}")

        def result():
            errors = _errors(process, progress)
            if process.returncode:
                last = (errors.strip().splitlines() or [f"exit status {process.returncode}"])[-1]
                raise DuetError(_as_arguments(re.sub(r"^duet: ", "", last)), process.returncode)
            printed = re.sub(rf"(?m)^written:\s+{re.escape(folder)}.*\n(?:  .*\n)*", "",
                             output.read_text(errors="replace"))  # the folder is removed
            return Result(_plain(json.loads(record.read_text())), printed,
                          page.read_text() if page.exists() else None)
        with output.open("w") as file, \
                subprocess.Popen(words, stdout=file, stderr=subprocess.PIPE,
                                 stdin=subprocess.DEVNULL, text=True, errors="replace",
                                 start_new_session=True) as process:
            try:
                yield result
            finally:
                _end(process)


def run(subcommand, *, progress=True, **options):
    """Runs a subcommand and returns its Result. An option that is True has no value, False is its
    --no- form, None is left out, and a list is joined with commas. If the command fails, its one
    line becomes a DuetError, in which --batch-size is written batch_size; `code` is the exit
    status. A failed check (exit status 3) also raises it. `model` may be a torch.nn.Module, with an
    example batch as `inputs`: duet.export then writes it for this run."""
    with started(subcommand, progress=progress, **options) as result:
        return result()


def train(model=None, inputs=None, **options):
    """duet train: one run, in the mode `mode`."""
    return run("train", model=model, inputs=inputs, **options)


def compare(model=None, inputs=None, **options):
    """duet compare: the same training as single, DP and DDP; proves that they agree."""
    return run("compare", model=model, inputs=inputs, **options)


def profile(model=None, inputs=None, **options):
    """duet profile: measures where time and memory go."""
    return run("profile", model=model, inputs=inputs, **options)


def estimate(model=None, inputs=None, **options):
    """duet estimate: predict memory, traffic and with gpu= times, without running."""
    return run("estimate", model=model, inputs=inputs, **options)
