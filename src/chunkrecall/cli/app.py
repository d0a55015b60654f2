"""The commands, each a thin layer over the library.

Standard output is exactly one document; everything else goes to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from chunkrecall._version import __version__
from chunkrecall.cli import data, diagnosing
from chunkrecall.cli.exits import GATE_MISSED, NOT_MEASURED, Exit, Failure
from chunkrecall.cli.gating import (
    BaselineOption,
    ExcludeIdsOption,
    Gate,
    GateCodeOption,
    GateSummaryOption,
    MaxDropOption,
    MinCoverageOption,
    MinHitsOption,
    MinRecallOption,
)
from chunkrecall.cli.loading import load_retriever
from chunkrecall.cli.options import (
    DedupeOption,
    DirectionOption,
    ErrorPolicy,
    ExcludeSelfOption,
    FormatOption,
    IdKeyOption,
    KOption,
    LevelOption,
    Match,
    MatchOption,
    NoRelevantOption,
    NoRelevantPolicy,
    OnErrorOption,
    OutputFormat,
    ReportOption,
    ThresholdOption,
    cutoffs,
    matcher_of,
)
from chunkrecall.cli.output import stdout_kept, write_document
from chunkrecall.demo import run_demo
from chunkrecall.evaluation import Calls, count_calls, evaluate_plan, numbered_path
from chunkrecall.formats import check_target, load_dataset, load_run, save_run
from chunkrecall.metric import cutoff_name
from chunkrecall.render import Column, Document, Table, printable, share, to_markdown, to_terminal
from chunkrecall.report import Report
from chunkrecall.retrieval import MAX_PERMANENT_ERRORS, Asking
from chunkrecall.scoring import plan_scoring, score_plan
from chunkrecall.template import EvalResult, evaluate

if TYPE_CHECKING:
    from chunkrecall.diagnosis import Diagnosis
    from chunkrecall.records import Run

app = typer.Typer(
    name="chunkrecall",
    help="Recall@K for LangChain and LlamaIndex retrievers: which relevant chunks are missed.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_CONFIG_NAMES = ("eval_config", "evalConfig")
_NAME_NAMES = ("eval_name", "evalName")
_PAYLOAD_KEYS = {"hypothesis", "reference", *_CONFIG_NAMES, *_NAME_NAMES}


def _print_version(value: bool) -> None:
    if value:
        write_document(f"{__version__}\n")
        raise Exit(0)


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    errors: Annotated[
        str, typer.Option(help="How bad files are reported on stderr: text or json. Anywhere.")
    ] = "text",
) -> None:
    if errors not in ("text", "json"):
        raise Failure(f"--errors takes text or json, got {errors!r}")
    del version


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option("--out", help="The folder that gets the datasets, runs and reports.")
    ] = Path("chunkrecall-demo"),
    k: KOption = "1,3,5,10",
    format: FormatOption = OutputFormat.TABLE,  # noqa: A002 - the option's name
) -> None:
    """Evaluate three real retrievers over a shipped labelled corpus, offline."""
    with stdout_kept():
        reports, diagnosis = run_demo(out, k=cutoffs(k), say=_say)
    _print_reports(reports, format, diagnosis)
    _say(f"datasets, runs and reports are in {out}{'' if str(out).endswith('/') else '/'}")


@app.command()
def run(
    retriever: Annotated[
        str, typer.Argument(help="MODULE:RETRIEVER, such as app.search:retriever.")
    ],
    dataset: Annotated[Path, typer.Option("--dataset", help="The labelled queries.")],
    k: KOption = "1,3,5,10",
    format: FormatOption = OutputFormat.TABLE,  # noqa: A002 - the option's name
    match: MatchOption = Match.AUTO,
    id_key: IdKeyOption = None,
    direction: DirectionOption = None,
    threshold: ThresholdOption = None,
    relevance_level: LevelOption = 1,
    dedupe: DedupeOption = False,
    exclude_self: ExcludeSelfOption = False,
    no_relevant: NoRelevantOption = NoRelevantPolicy.EXCLUDE,
    on_error: OnErrorOption = ErrorPolicy.RECORD,
    max_concurrency: Annotated[int, typer.Option(help="How many calls may run at a time.")] = 8,
    timeout_s: Annotated[
        float | None, typer.Option(help="Seconds that one attempt may take.")
    ] = None,
    retries: Annotated[int, typer.Option(help="Further attempts after a transient failure.")] = 2,
    rate_limit: Annotated[
        str | None, typer.Option(help="Calls per period, such as 100/min or 10/s.")
    ] = None,
    max_permanent_errors: Annotated[
        int, typer.Option(help="Stop after so many refusals in a row; 0 never stops.")
    ] = MAX_PERMANENT_ERRORS,
    repeats: Annotated[
        int, typer.Option(help="How often every query is asked; scores are means over them.")
    ] = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many retriever calls there would be.")
    ] = False,
    no_texts: Annotated[
        bool, typer.Option("--no-texts", help="Keep no retrieved texts: memory for long runs.")
    ] = False,
    save: Annotated[
        Path | None, typer.Option("--save-run", help="Also save the ranked lists here.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Append each ranked list here; a killed run goes on from it."),
    ] = None,
    only: Annotated[
        str, typer.Option(help="With --checkpoint: missing queries, or errored ones too.")
    ] = "missing",
    report: ReportOption = None,
    min_recall: MinRecallOption = None,
    min_hits: MinHitsOption = None,
    min_coverage: MinCoverageOption = None,
    baseline: BaselineOption = None,
    max_drop: MaxDropOption = "0",
    exclude_ids: ExcludeIdsOption = None,
    gate_exit_code: GateCodeOption = GATE_MISSED,
    gate_summary: GateSummaryOption = None,
) -> None:
    """Run a retriever over labelled queries and score it."""
    gate = Gate(
        min_recall,
        min_hits,
        min_coverage,
        baseline,
        max_drop,
        exclude_ids,
        gate_exit_code,
        gate_summary,
    )
    _check_targets(report, save)
    labelled = load_dataset(dataset)
    _say_all(labelled.notes)
    plan = plan_scoring(
        labelled,
        k=cutoffs(k),
        matcher=matcher_of(match, id_key, direction, threshold),
        relevance_level=relevance_level,
        dedupe=dedupe,
        exclude_self=exclude_self,
        no_relevant=no_relevant.value,
        on_error=on_error.value,
        keep_texts=not no_texts,
    )
    how = Asking.of(
        depth=plan.depth,
        on_error=on_error.value,
        max_concurrency=max_concurrency,
        timeout_s=timeout_s,
        retries=retries,
        rate_limit=rate_limit,
        max_permanent_errors=max_permanent_errors or None,
        checkpoint=checkpoint,
        only=only,  # type: ignore[arg-type]  # checked there
    )
    if no_texts and save is not None:
        raise Failure("--no-texts keeps nothing that --save-run could write: use --checkpoint")
    if dry_run:
        with stdout_kept():
            calls = count_calls(load_retriever(retriever), plan.dataset, how, repeats=repeats)
        write_document(_calls_text(calls, format))
        return
    with stdout_kept():  # what the user's code prints is no part of the document
        asked = load_retriever(retriever)
        outcome = evaluate_plan(asked, plan, how, repeats=repeats, on_run=_saver(save))
    _finish(outcome, format, report, gate)


def _saver(path: Path | None) -> Callable[[Run, int], None] | None:
    """Writes the ranked lists of each repeat as it ends."""
    if path is None:
        return None
    return lambda run, number: save_run(run, numbered_path(path, number))


def _calls_text(calls: Calls, format: OutputFormat) -> str:  # noqa: A002 - the option's name
    if format is OutputFormat.JSON:
        return json.dumps(calls.to_dict(), allow_nan=False) + "\n"
    return f"{printable(str(calls))}\n"


@app.command()
def score(
    run: Annotated[Path, typer.Argument(help="The ranked lists, such as run.jsonl.")],
    dataset: Annotated[Path, typer.Argument(help="The labelled queries.")],
    k: KOption = "1,3,5,10",
    format: FormatOption = OutputFormat.TABLE,  # noqa: A002 - the option's name
    match: MatchOption = Match.AUTO,
    id_key: IdKeyOption = None,
    direction: DirectionOption = None,
    threshold: ThresholdOption = None,
    relevance_level: LevelOption = 1,
    dedupe: DedupeOption = False,
    exclude_self: ExcludeSelfOption = False,
    no_relevant: NoRelevantOption = NoRelevantPolicy.EXCLUDE,
    on_error: OnErrorOption = ErrorPolicy.RECORD,
    report: ReportOption = None,
    min_recall: MinRecallOption = None,
    min_hits: MinHitsOption = None,
    min_coverage: MinCoverageOption = None,
    baseline: BaselineOption = None,
    max_drop: MaxDropOption = "0",
    exclude_ids: ExcludeIdsOption = None,
    gate_exit_code: GateCodeOption = GATE_MISSED,
    gate_summary: GateSummaryOption = None,
) -> None:
    """Score the ranked lists of a run file against a dataset."""
    gate = Gate(
        min_recall,
        min_hits,
        min_coverage,
        baseline,
        max_drop,
        exclude_ids,
        gate_exit_code,
        gate_summary,
    )
    if on_error is ErrorPolicy.RAISE:
        raise Failure("--on-error raise goes with `chunkrecall run`; use record or zero")
    _check_targets(report)
    labelled = load_dataset(dataset)
    _say_all(labelled.notes)
    plan = plan_scoring(
        labelled,
        k=cutoffs(k),
        matcher=matcher_of(match, id_key, direction, threshold),
        relevance_level=relevance_level,
        dedupe=dedupe,
        exclude_self=exclude_self,
        no_relevant=no_relevant.value,
        on_error=on_error.value,
        keep_texts=True,
    )
    _finish(score_plan(load_run(run), plan), format, report, gate)


app.command()(diagnosing.diagnose)
app.command()(data.check)
app.command()(data.convert)
app.command()(data.relabel)
app.command()(data.label)


@app.command("eval")
def eval_() -> None:
    """The template call: JSON with hypothesis, reference and evalConfig in, results out."""
    try:
        payload = json.loads(sys.stdin.buffer.read().decode("utf-8-sig"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise Failure(f"standard input is no JSON: {error}") from error
    if not isinstance(payload, dict):
        raise Failure(f"standard input must be a JSON object, got {type(payload).__name__}")
    unknown = sorted(set(payload) - _PAYLOAD_KEYS)
    if unknown:
        raise Failure(f"unknown keys {unknown}; known: {sorted(_PAYLOAD_KEYS)}")
    for name in ("hypothesis", "reference"):
        if name not in payload:
            raise Failure(f'"{name}" is missing: give it as a JSON array of strings, serialised')
    name = _either(payload, _NAME_NAMES)
    outcome = evaluate(
        "recall_at_k" if name is None else name,
        hypothesis=payload["hypothesis"],
        reference=payload["reference"],
        eval_config=_either(payload, _CONFIG_NAMES),
    )
    results = [outcome] if isinstance(outcome, EvalResult) else outcome
    rows = [result.to_dict() for result in results]
    document = rows[0] if isinstance(outcome, EvalResult) else rows
    write_document(json.dumps(document, allow_nan=False) + "\n")
    if not any(result.status == "completed" for result in results):
        raise Exit(NOT_MEASURED)


def _either(payload: dict[str, Any], names: tuple[str, str]) -> Any:  # noqa: ANN401 - any JSON value
    given = [name for name in names if payload.get(name) is not None]
    if len(given) > 1:
        raise Failure(f"{given[0]} and {given[1]} mean the same: give one of them")
    return payload[given[0]] if given else None


def _check_targets(report: Path | None, run: Path | None = None) -> None:
    """Refuse what could not be written before anything is retrieved."""
    if run is not None:
        check_target(run)
    if report is None:
        return
    if not report.parent.is_dir():
        raise Failure(f"{report}: there is no folder {str(report.parent)!r}")
    if report.is_dir():
        raise Failure(f"{report} is a folder: name a file in it")


def _finish(
    report: Report,
    format: OutputFormat,  # noqa: A002 - the option's name
    path: Path | None,
    gate: Gate,
) -> None:
    if path is not None:
        report.save(path)
    _print_reports([report], format)
    if not any(summary.scored for summary in report.summary.values()):
        _say("nothing could be measured: no query was scored")
        raise Exit(NOT_MEASURED)
    gate.hold(report)


def _print_reports(
    reports: list[Report],
    format: OutputFormat,  # noqa: A002
    diagnosis: Diagnosis | None = None,
) -> None:
    if format is OutputFormat.JSON:
        rows = [report.to_dict() for report in reports]
        text = json.dumps(rows[0] if len(rows) == 1 else rows, allow_nan=False) + "\n"
    elif format is OutputFormat.MARKDOWN:
        parts = [report.to_markdown() for report in reports]
        if len(reports) > 1:
            parts.append(to_markdown(_side_by_side(reports)))
        if diagnosis is not None:
            parts.append(diagnosis.to_markdown())
        text = "\n".join(parts)
    else:
        color = sys.stdout.isatty()
        parts = [report.to_terminal(color=color) for report in reports]
        if len(reports) > 1:
            parts.append(to_terminal(_side_by_side(reports), color=color))
        if diagnosis is not None:
            parts.append(diagnosis.to_terminal(color=color))
        text = "\n\n".join(parts)
    write_document(text if text.endswith("\n") else text + "\n")


def _side_by_side(reports: list[Report]) -> Document:
    names = [cutoff_name(k) for k in reports[0].cutoffs]
    columns = (Column("retriever"), *[Column(name, align="right") for name in names])
    rows = [(r.name, *[share(r.summary[name].mean) for name in names]) for r in reports]
    return Document((Table("Side by side", columns, tuple(rows)),))


def _say(message: str) -> None:
    sys.stderr.write(f"{printable(message)}\n")


def _say_all(messages: tuple[str, ...]) -> None:
    for message in messages:
        _say(f"note: {message}")
