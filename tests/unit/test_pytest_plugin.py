"""The pytest plugin, in sessions of its own: the fixture, the failure and the table at the end."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

ONE_FAILS = """
    import pytest
    from chunkrecall import assert_recall, evaluate_retriever

    LABELS = {"How long does a refund take?": ["Refunds take 14 days."],
              "What does delivery cost?": ["Express costs 9 euros.", "Standard delivery is free."]}

    def shelf(query):
        return ["Refunds take 14 days.", "Express costs 9 euros."]

    @pytest.fixture(scope="module")
    def report(recall_report):
        return recall_report(evaluate_retriever(shelf, LABELS, k=(1, 5)))

    def test_recall_is_enough(report):
        assert_recall(report, at=5, min=0.7)

    def test_recall_is_high(report):
        assert_recall(report, at=5, min=0.8)
"""
HEADING = r"report +recall@1 +recall@5 +queries +scored +errors"
ROW = r"shelf +0\.500 +0\.750 +2 +2 +0"


@pytest.mark.parametrize(
    "arguments",
    [(), ("-q",), ("-q", "-p", "no:xdist"), ("-p", "no:cacheprovider", "-v", "--no-header")],
    ids=" ".join,
)
def test_a_failing_session_names_what_was_missed_and_ends_in_one_table(
    pytester: pytest.Pytester, arguments: tuple[str, ...]
) -> None:
    pytester.makepyfile(ONE_FAILS)
    done = pytester.runpytest_inprocess(*arguments)
    done.assert_outcomes(passed=1, failed=1)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    text = done.stdout.str()
    failure, table = text.split(" recall ===", 1)
    assert "MISSED: recall@5 at least 0.8; it is 0.750 over 2 queries" in failure
    assert "'What does delivery cost?' recall@5 0.500, missed: 'Standard delivery is free.'" in (
        failure
    )
    assert "gate.py" not in failure  # the traceback ends in the test
    assert len(re.findall(HEADING, text)) == len(re.findall(HEADING, table)) == 1
    assert len(re.findall(ROW, table)) == 1  # two tests share the report


def test_the_workers_of_xdist_hand_their_reports_to_the_one_table(
    pytester: pytest.Pytester,
) -> None:
    pytest.importorskip("xdist")
    pytester.makepyfile(
        """
        import pytest
        from chunkrecall import assert_recall, evaluate_retriever

        @pytest.mark.parametrize("name", ["d", "b", "c", "a \\ud800 \\x1b[31m"])
        def test_recall(recall_report, name):
            report = evaluate_retriever(lambda text: ["x"], {"q": ["x", "y"]}, k=(2, None))
            assert_recall(recall_report(report, name=name), at=2, min=0.5)

        @pytest.mark.parametrize("number", range(4))
        def test_the_same(recall_report, number):
            report = evaluate_retriever(lambda text: ["x"], {"q": ["x"]}, k=2, name="same")
            recall_report(report)
        """
    )
    done = pytester.runpytest_subprocess("-n", "2", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=8)
    text = done.stdout.str()
    assert len(re.findall("report +recall@2 +recall@all", text)) == 1
    rows = re.findall(r"^(\S.*?) {2,}(?:0\.500|1\.000) ", text, re.MULTILINE)
    assert rows == ["a \\ud800 \\x1b[31m", "b", "c", "d", "same ×4"]
    assert "\x1b" not in text


def test_the_rows_say_how_much_was_measured(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        from chunkrecall import Dataset, Query, Ranking, Run, Chunk, evaluate_retriever, score

        def search(text):
            if text == "broken":
                raise RuntimeError("no key")
            return [text]

        def test_failures(recall_report):
            labels = {"a": ["a"], "broken": ["b"], "unjudged": None}
            recall_report.add(evaluate_retriever(search, labels, k=1), name="failures")

        def test_a_partial_run(recall_report):
            run = Run(rankings=[Ranking(query_id="a", chunks=[Chunk(text="a")])], complete=False)
            labels = Dataset([Query(query_id=q, text=q, relevant=["a"]) for q in "ab"], name="set")
            recall_report(score(run, labels, k=3))

        def test_nothing(recall_report):
            recall_report(evaluate_retriever(search, {}, k=1, name="nothing"))
        """
    )
    done = pytester.runpytest_inprocess("-q")
    done.stdout.re_match_lines(
        [
            r"report +recall@1 +recall@3 +queries +scored +errors +not run",
            r"failures +1\.000 +3 +1 +1 +0",
            r".+ on set +1\.000 +2 +1 +0 +1",
            r"nothing +– +0 +0 +0 +0",
        ]
    )


@pytest.mark.parametrize(
    "name", ["\x1b[31mred\x07", "[red]x[/red]", "two\nlines", "\u202eevil", "\ud800", "x" * 5000]
)
def test_no_name_takes_effect_in_the_terminal(pytester: pytest.Pytester, name: str) -> None:
    pytester.makepyfile(
        f"""
        from chunkrecall import evaluate_retriever

        def test_it(recall_report):
            name = {name!a}
            recall_report(evaluate_retriever(lambda t: [t], {{"q": ["q"]}}, k=1, name=name))
        """
    )
    done = pytester.runpytest_inprocess("-q", "--color=no")
    done.assert_outcomes(passed=1)
    table = done.stdout.str().split(" recall ===", 1)[1]
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800]", table)
    assert max(map(len, table.splitlines())) <= 120
    if name.startswith("[red]"):
        assert name in table


def test_a_narrow_terminal_cuts_no_number(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    pytester.makepyfile(
        """
        from chunkrecall import evaluate_retriever

        def test_it(recall_report):
            recall_report(evaluate_retriever(lambda t: [], {"q": ["q"]}, name="a name " * 9))
        """
    )
    done = pytester.runpytest_inprocess("-q")
    done.stdout.re_match_lines([r".*recall@1 +recall@3 +recall@5 +recall@10 +queries.*"])
    assert done.stdout.str().count("0.000") == 4


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("recall_report(0.8)", "recall_report takes a Report, got 0.8"),
        ("recall_report(report, name=5)", "name must be a string, got 5"),
    ],
)
def test_what_is_no_report_is_refused(pytester: pytest.Pytester, call: str, message: str) -> None:
    pytester.makepyfile(
        f"""
        from chunkrecall import evaluate_retriever

        def test_it(recall_report):
            report = evaluate_retriever(lambda t: [t], {{"q": ["q"]}}, k=1)
            {call}
        """
    )
    done = pytester.runpytest_inprocess("-q")
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines([f"*TypeError: {message}"])
    done.stdout.no_fnmatch_line("*= recall =*")


def test_a_session_without_reports_says_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(recall_report): pass")
    done = pytester.runpytest_inprocess()
    done.assert_outcomes(passed=1)
    done.stdout.no_fnmatch_line("*recall*==*")


def test_the_plugin_can_be_switched_off_and_named_alone(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytester.makepyfile(ONE_FAILS)
    off = pytester.runpytest_subprocess("-q", "-p", "no:chunkrecall")
    off.assert_outcomes(errors=2)
    assert "fixture 'recall_report' not found" in off.stdout.str()
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    alone = pytester.runpytest_subprocess("-q", "-p", "chunkrecall.pytest_plugin")
    alone.assert_outcomes(passed=1, failed=1)
    assert len(re.findall(ROW, alone.stdout.str())) == 1


def test_the_plugin_loads_nothing_of_ours_and_no_framework_when_pytest_starts() -> None:
    code = """
import sys, pytest
before = set(sys.modules)
import chunkrecall.pytest_plugin
print(*sorted(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {name for name in loaded if name.startswith("chunkrecall")} == {
        "chunkrecall", "chunkrecall._version", "chunkrecall.pytest_plugin",
    }  # fmt: skip
    roots = {name.partition(".")[0] for name in loaded} - {"chunkrecall"}
    assert roots <= sys.stdlib_module_names


def test_a_session_without_reports_loads_nothing_more_of_ours(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import sys

        def pytest_unconfigure():
            print("LOADED", *[name for name in sys.modules if name.startswith("chunkrecall")])
        """
    )
    pytester.makepyfile("def test_it(): pass")
    done = pytester.runpytest_subprocess("-q")
    (line,) = [one for one in done.outlines if one.startswith("LOADED")]
    assert set(line.split()[1:]) == {
        "chunkrecall", "chunkrecall._version", "chunkrecall.pytest_plugin",
    }  # fmt: skip
