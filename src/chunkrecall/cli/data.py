"""The commands over labelled sets and runs as files: check, convert and label."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from chunkrecall.cli.exits import NOT_MEASURED, Exit, Failure
from chunkrecall.cli.options import FormatOption, KOption, OutputFormat, cutoffs
from chunkrecall.formats import (
    FORMATS,
    check_target,
    load_corpus,
    load_dataset,
    load_run,
    save_dataset,
    save_run,
)
from chunkrecall.labels import Draft, check_dataset, draft_from, read_draft
from chunkrecall.labels import relabel as resolve
from chunkrecall.render import printable

_UNSOUND = 2
_SHOWN_CHARACTERS = 2_000
_ANSWERS = "y relevant, n not, s skip the query, q save and leave"


class Kind(StrEnum):
    """What a file holds."""

    DATASET = "dataset"
    RUN = "run"


FileFormat = StrEnum("FileFormat", list(FORMATS))  # type: ignore[misc]  # known at run time alone


FromOption = Annotated[
    FileFormat, typer.Option("--from", help="The format; auto goes by the file's ending.")
]
ColumnOption = Annotated[str | None, typer.Option(help="The column that holds it.")]
EncodingOption = Annotated[str, typer.Option(help="The file's encoding.")]


def check(
    dataset: Annotated[Path, typer.Argument(help="The labelled queries.")],
    corpus: Annotated[
        Path | None, typer.Option(help="All chunks that are indexed: rows with an id and a text.")
    ] = None,
    k: KOption = "1,3,5,10",
    from_: FromOption = FileFormat("auto"),
    encoding: EncodingOption = "utf-8",
    format: FormatOption = OutputFormat.TABLE,  # noqa: A002 - the option's name
) -> None:
    """Look for labels that cannot be found, repeat or contradict; exit 2 if there are any."""
    read_as: Any = from_.value
    labelled = load_dataset(dataset, read_as, encoding=encoding)
    _say_all(labelled.notes)
    chunks = None if corpus is None else load_corpus(corpus)
    found = check_dataset(labelled, chunks, k=cutoffs(k))
    if format is OutputFormat.JSON:
        text = json.dumps(found.to_dict(), allow_nan=False)
    elif format is OutputFormat.MARKDOWN:
        text = found.to_markdown()
    else:
        text = str(found)
    sys.stdout.write(text.rstrip("\n") + "\n")
    if not found.ok:
        raise Exit(_UNSOUND)


def relabel(
    dataset: Annotated[Path, typer.Argument(help="The labelled queries.")],
    corpus: Annotated[
        Path,
        typer.Option(help="All chunks that are indexed: rows with an id, a text and metadata."),
    ],
    out: Annotated[Path, typer.Option(help="Write the resolved set here.")],
    overlap: Annotated[
        str,
        typer.Option(help="The share of a label from which on a chunk is needed for it, or any."),
    ] = "any",
    from_: FromOption = FileFormat("auto"),
    encoding: EncodingOption = "utf-8",
    format: FormatOption = OutputFormat.TABLE,  # noqa: A002 - the option's name
) -> None:
    """Resolve labels, spans or passages, against the chunks of a corpus; exit 4 if none is."""
    check_target(out)
    rule: Any = overlap
    if overlap != "any":
        try:
            rule = float(overlap)
        except ValueError:
            raise Failure(f"--overlap takes any, or a share such as 0.5, got {overlap!r}") from None
    read_as: Any = from_.value
    labelled = load_dataset(dataset, read_as, encoding=encoding)
    _say_all(labelled.notes)
    made = resolve(labelled, load_corpus(corpus), rule=rule)
    save_dataset(made.dataset, out)
    if format is OutputFormat.JSON:
        text = json.dumps(made.to_dict(), allow_nan=False)
    else:
        text = made.to_markdown() if format is OutputFormat.MARKDOWN else str(made)
    sys.stdout.write(text.rstrip("\n") + "\n")
    if len(made.unresolved) == made.labels:
        raise Exit(NOT_MEASURED)


def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="The file to read.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write.")],
    kind: Annotated[Kind, typer.Option(help="What the file holds.")] = Kind.DATASET,
    from_: FromOption = FileFormat("auto"),
    to: Annotated[
        FileFormat, typer.Option("--to", help="The format; auto goes by the file's ending.")
    ] = FileFormat("auto"),
    query: ColumnOption = None,
    relevant: ColumnOption = None,
    relevant_ids: ColumnOption = None,
    retrieved: ColumnOption = None,
    retrieved_ids: ColumnOption = None,
    query_id: ColumnOption = None,
    topics: Annotated[Path | None, typer.Option(help="With trec: id<TAB>query text.")] = None,
    order: Annotated[str, typer.Option(help="With trec runs: rank, score or trec_eval.")] = "rank",
    encoding: EncodingOption = "utf-8",
) -> None:
    """Write a labelled set, or a run, in another format."""
    written: Any = to.value
    check_target(target, written)
    shared: dict[str, Any] = {
        "format": from_.value,
        "query": query,
        "query_id": query_id,
        "encoding": encoding,
    }
    if kind is Kind.RUN:
        if relevant or relevant_ids or topics:
            raise Failure("--relevant, --relevant-ids and --topics go with --kind dataset")
        shared |= {"retrieved": retrieved, "retrieved_ids": retrieved_ids, "order": order}
        run = load_run(source, **shared)
        _say_all(run.notes)
        save_run(run, target, written)
        said = f"{len(run.rankings)} ranked lists"
    else:
        if retrieved or retrieved_ids:
            raise Failure("--retrieved and --retrieved-ids go with --kind run")
        shared |= {"relevant": relevant, "relevant_ids": relevant_ids, "topics": topics}
        dataset = load_dataset(source, **shared)
        _say_all(dataset.notes)
        save_dataset(dataset, target, written)
        said = f"{len(dataset)} queries"
    sys.stdout.write(f"{printable(str(target))}: {said}\n")


def label(
    draft: Annotated[Path, typer.Argument(help="The draft; made of --run if it does not exist.")],
    run: Annotated[Path | None, typer.Option(help="The ranked lists to tick.")] = None,
    dataset: Annotated[
        Path | None, typer.Option(help="The queries' texts, and the labels there are already.")
    ] = None,
    depth: Annotated[int, typer.Option(help="How many chunks a query.")] = 10,
    out: Annotated[Path | None, typer.Option(help="Write the labelled set here.")] = None,
) -> None:
    """Walk through a draft of labels, chunk by chunk; leave at any time and come back."""
    if out is not None:
        check_target(out)
    if draft.exists():
        if run is not None:
            raise Failure(f"{draft} exists: leave out --run to go on with it")
        made = read_draft(draft)
    elif run is None:
        raise Failure(f"{draft} does not exist: say with --run what to make it of")
    else:
        labelled = None if dataset is None else load_dataset(dataset)
        made = draft_from(load_run(run), labelled, depth=depth)
        made.save(draft)
    _walk(made, draft)
    labels = made.to_dataset(draft.stem)
    if out is not None:
        save_dataset(labels, out)
    judged = sum(query.judged for query in labels)
    left = sum(len(query.undecided) for query in made.queries)
    text = f"{judged} of {len(labels)} queries judged, {left} chunks undecided"
    sys.stdout.write(f"{printable(str(draft if out is None else out))}: {text}\n")


def _walk(draft: Draft, path: Path) -> None:
    """Ask for each undecided chunk; saved after each answer."""
    if not any(query.undecided for query in draft.queries):
        return
    _say(_ANSWERS)
    for number, query in enumerate(draft.queries, start=1):
        for chunk in query.undecided:
            place = f"{number}/{len(draft.queries)}"
            _say(f"\n[{place}] {printable(query.text, limit=_SHOWN_CHARACTERS)}")
            _say(f"    {printable(chunk.text or str(chunk.chunk_id), limit=_SHOWN_CHARACTERS)}")
            answer = _answer()
            if answer == "q":
                return
            if answer == "s":
                break
            chunk.relevant = answer == "y"
            draft.save(path)


def _answer() -> str:
    while True:
        sys.stderr.write("relevant? [y/n/s/q] ")
        sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:  # nobody is there any more
            return "q"
        word = line.strip().lower()[:1]
        if word in ("y", "n", "s", "q"):
            return word
        _say(_ANSWERS)


def _say(message: str) -> None:
    sys.stderr.write(f"{message}\n")


def _say_all(notes: tuple[str, ...]) -> None:
    for note in notes:
        _say(f"note: {printable(note)}")
