import re
import subprocess
import sys
import unicodedata
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chunkrecall.render import (
    Column,
    Document,
    Paragraph,
    Table,
    count,
    html,
    markdown,
    percent,
    printable,
    quoted,
    seconds,
    share,
    to_html,
    to_markdown,
    to_terminal,
)
from chunkrecall.text import INVISIBLE

HOSTILE_WORDS = (
    "[red]x[/red]",
    "\x1b[31mred",
    "\x1b]8;;http://evil.example\x07link",
    "\u202eevil",
    "\u2066isolate",
    "<script>alert(1)</script>",
    "<!-- -->",
    "a|b",
    "a\\|b",
    "\\",
    "line\nbreak\r\n",
    "\ud800",
    "\U0010ffff\ufdd0\ue000",
    "데이터",
    "👩\u200d👩\u200d👧",
    "e" + "\u0301" * 20,
    "http://evil.example/x",
    "www.evil.example",
    "me@evil.example",
    "@team",
    "#12",
    "GH-12",
    ":smile:",
    "$x$",
    "![i](u)",
    "[l](u)",
    "<http://u>",
    "`code`",
    "**b** _i_ ~~s~~",
    "&amp;&#35;",
    "- item",
    "1. item",
    "# head",
    "---",
    "===",
    "> quote",
    "    code",
    "'quoted'",
    "[^1]",
    ":::",
)
HOSTILE = st.one_of(
    st.lists(
        st.one_of(st.sampled_from(HOSTILE_WORDS), st.text(max_size=5)), min_size=1, max_size=4
    ).map("".join),
    st.text(st.characters(), max_size=30),
)


def is_harmful(character: str) -> bool:
    code = ord(character)
    return (
        unicodedata.category(character) in ("Cc", "Cs", "Co", "Zl", "Zp")
        or unicodedata.bidirectional(character)
        in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        or any(first <= code <= last for first, last in INVISIBLE)
        or code & 0xFFFE == 0xFFFE
        or 0xFDD0 <= code <= 0xFDEF
    )


def test_exactly_the_harmful_code_points_are_escaped():
    plane_ends = (plane + last for plane in range(0, 0x110000, 0x10000) for last in (-2, -1))
    private = (0xF0000, 0x100000)
    codes = {*range(0x20000), *range(0xDFFFE, 0xE1001), *plane_ends, *private} - {-2, -1}
    for character in map(chr, codes):
        shown = printable(character)
        if is_harmful(character):
            assert shown == character.encode("unicode_escape").decode()
        elif unicodedata.category(character) != "Cf":
            assert shown == character


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\tc", "a\\nb\\tc"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\u202e", "\\u202e"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("C:\\new", "C:\\new"),
        ("Größe 데이터 नमस्ते שלום 🎉", "Größe 데이터 नमस्ते שלום 🎉"),
        ("۝ \u0601", "۝ \u0601"),
        ("e" + "\u0301" * 6, "e" + "\u0301" * 4 + "\\u0301\\u0301"),
        ("", ""),
    ],
)
def test_what_cannot_be_shown_is_escaped_and_the_rest_stays(text, shown):
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("text", "limit", "shown"),
    [
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        ("abc\x1bdef", 6, "abc…"),
        ("ab\x1b", 6, "ab\\x1b"),
        ("\x1b\x1b", 3, "…"),
        ("데이터베이스", 3, "데이…"),
        ("abc", 1, "…"),
    ],
)
def test_a_limit_cuts_between_characters_and_never_inside_an_escape(text, limit, shown):
    assert printable(text, limit=limit) == shown


@pytest.mark.parametrize("text", ["", "abc", "é"])
def test_a_limit_that_leaves_no_room_is_refused(text):
    with pytest.raises(ValueError, match="at least 1, got 0"):
        printable(text, limit=0)
    with pytest.raises(ValueError, match="at least 3, got 2"):
        quoted(text, limit=2)


@settings(derandomize=True, max_examples=500)
@given(HOSTILE, st.none() | st.integers(3, 20))
def test_printable_text_is_one_harmless_line_within_the_limit(text, limit):
    for shown in (printable(text, limit=limit), quoted(text, limit=limit)):
        assert not any(map(is_harmful, shown))
        shown.encode("utf-8")
        assert len(shown.splitlines()) <= 1
        assert limit is None or len(shown) <= limit


@settings(derandomize=True)
@given(HOSTILE)
def test_printable_text_is_printed_as_it_is(text):
    assert printable(printable(text)) == printable(text)


@settings(derandomize=True)
@given(HOSTILE, HOSTILE)
def test_two_texts_are_quoted_alike_only_if_they_are_equal(first, second):
    assert (quoted(first) == quoted(second)) == (first == second)


def test_a_backslash_and_a_quote_are_escaped_in_quotes():
    assert quoted("it's \\n\n") == r"'it\'s \\n\n'"
    assert quoted("abcdef", limit=6) == "'abc…'"


@settings(derandomize=True, max_examples=500)
@given(HOSTILE)
def test_a_markdown_cell_has_no_bare_pipe_and_no_line_break(text):
    cell = markdown(text)
    assert not re.search(r"(?<!\\)(?:\\\\)*\|", cell)
    assert len(cell.splitlines()) <= 1


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("0.667", "0.667"),
        ("-0.120", "-0.120"),
        ("recall@5", "recall@5"),
        ("12:30 a-b (c) 5 / 6!", "12:30 a-b (c) 5 / 6!"),
        ("a|b\\c", "a\\|b\\\\c"),
        ("cc @team", "cc @<!-- -->team"),
        ("me@x.example", "me@<!-- -->x.example"),
        ("see #12, GH-3", "see #<!-- -->12, GH<!-- -->-3"),
        ("http://x www.x", "http:<!-- -->//x www<!-- -->.x"),
        (":tada:", ":<!-- -->tada:"),
        ("$x$", "\\$<!-- -->x\\$"),
        ("- x", "\\- x"),
        ("12. x", "12\\. x"),
        (" x\u00a0", "&#32;x&#160;"),
    ],
)
def test_markdown_is_escaped_where_github_would_read_it(text, escaped):
    assert markdown(text) == escaped


def test_a_long_run_of_spaces_takes_linear_time():
    assert markdown(" " * 100_000 + "x" + " " * 100_000 + "y").endswith("y")


def inline_tokens(source):
    markdown_it = pytest.importorskip("markdown_it")
    parser = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"])
    blocks = parser.parse(source)
    assert {block.type for block in blocks if block.type.endswith("_open")} <= {
        "paragraph_open",
        "table_open",
        "thead_open",
        "tbody_open",
        "tr_open",
        "th_open",
        "td_open",
    }
    assert not {"code_block", "fence", "hr", "html_block"} & {block.type for block in blocks}
    return [block.children for block in blocks if block.type == "inline"]


def shown_text(tokens):
    for token in tokens:
        assert token.type in ("text", "html_inline")
        assert token.type == "text" or token.content == "<!-- -->"
    return "".join(token.content for token in tokens if token.type == "text")


@settings(derandomize=True, max_examples=500)
@given(HOSTILE, HOSTILE)
def test_rendered_markdown_shows_exactly_the_printable_text(cell, paragraph):
    table = Table(None, (Column("a"), Column(cell, align="right")), ((cell, paragraph),))
    source = to_markdown(Document((Paragraph(paragraph), table)))
    shown = [shown_text(tokens) for tokens in inline_tokens(source)]
    paragraphs = [printable(paragraph)] if paragraph else []
    assert shown == [*paragraphs, "a", *map(printable, (cell, cell, paragraph))]


@settings(derandomize=True)
@given(HOSTILE)
def test_a_title_is_bold_and_nothing_else(title):
    tokens, *_ = inline_tokens(to_markdown(Document((Table(title, (Column("a"),), ()),))))
    if title:
        kept = [token for token in tokens if token.type not in ("strong_open", "strong_close")]
        assert len(tokens) - len(kept) == 2
        assert shown_text(kept) == printable(title)


def test_a_markdown_table_has_a_title_alignment_and_blank_lines_around():
    table = Table("Worst", (Column("query"), Column("recall", align="right")), (("q1", "0.5"),))
    assert to_markdown(Document((Paragraph("Run"), table))) == (
        "Run\n\n**Worst**\n\n| query | recall |\n| --- | ---: |\n| q1 | 0.5 |"
    )


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.names, self.texts = set(), set(), []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.names |= {name for name, _ in attrs}
        if tag in ("p", "th", "td", "caption"):
            self.texts.append("")

    def handle_data(self, data):
        self.texts[-1] += data

    def handle_comment(self, data):
        raise AssertionError(data)

    handle_decl = unknown_decl = handle_pi = handle_comment


@settings(derandomize=True, max_examples=300)
@given(HOSTILE, HOSTILE)
def test_html_shows_exactly_the_printable_text_and_no_tag_of_its_own(first, second):
    table = Table(first, (Column(second), Column("b", wrap=True)), ((first, second),))
    reader = Reader()
    reader.feed(to_html(Document((Paragraph(second), table))))
    reader.close()
    titles = [printable(first)] if first else []
    assert reader.texts == [
        printable(second),
        *titles,
        *map(printable, (second, "b", first, second)),
    ]
    assert reader.tags <= {"div", "p", "table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert reader.names == {"class", "style"}


def test_html_is_safe_in_a_quoted_attribute():
    assert html("\"'<&>\x1b") == "&quot;&#x27;&lt;&amp;&gt;\\x1b"


def hostile_document(cells):
    wide = tuple(Column(cell, wrap=index % 2 == 0) for index, cell in enumerate(cells))
    return Document(
        (
            Paragraph(cells[0]),
            Table(cells[-1], wide, (tuple(cells), tuple(reversed(cells)))),
            Table(None, (Column("k", align="right"),), ()),
        )
    )


@settings(derandomize=True, max_examples=200, deadline=None)
@given(st.lists(HOSTILE, min_size=1, max_size=8), st.integers(40, 120))
def test_a_terminal_gets_lines_that_fit_and_no_control_character(cells, width):
    from rich.cells import cell_len

    drawn = to_terminal(hostile_document(cells), width=width)
    assert not any(is_harmful(character) for character in drawn if character != "\n")
    assert all(cell_len(line) <= width for line in drawn.split("\n"))


@pytest.mark.parametrize("word", HOSTILE_WORDS)
def test_a_terminal_shows_markup_as_text(word):
    drawn = to_terminal(Document((Paragraph(f"x{word}"),)), width=200)
    assert drawn == f"x{printable(word)}".rstrip()


def test_colour_adds_nothing_but_styles():
    document = hostile_document(HOSTILE_WORDS[:4])
    styled = to_terminal(document, width=80, color=True)
    assert "\x1b[1m" in styled
    unstyled = re.sub(r"\x1b\[\d+m", "", styled)
    assert [line.rstrip() for line in unstyled.split("\n")] == [
        line.rstrip() for line in to_terminal(document, width=80).split("\n")
    ]


@pytest.mark.parametrize("name", ["NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TERM"])
def test_the_environment_does_not_overrule_the_arguments(monkeypatch, name):
    document = hostile_document(HOSTILE_WORDS[:4])
    expected = [to_terminal(document, width=70, color=color) for color in (False, True)]
    monkeypatch.setenv(name, "dumb" if name == "TERM" else "1")
    assert [to_terminal(document, width=70, color=color) for color in (False, True)] == expected


def test_the_width_is_the_terminals_or_100_and_at_least_40(monkeypatch):
    document = Document((Paragraph("word " * 100),))

    def widest(**options):
        return max(map(len, to_terminal(document, **options).split("\n")))

    monkeypatch.setenv("COLUMNS", "60")
    assert 54 < widest() <= 60
    assert 34 < widest(width=5) <= 40
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr("sys.__stdout__", None)
    assert 94 < widest() <= 100


def test_a_long_name_leaves_room_for_the_columns_that_wrap():
    columns = (Column("query"), Column("text", wrap=True))
    drawn = to_terminal(Document((Table(None, columns, (("q" * 90, "some words"),)),)), width=60)
    assert "some words" in drawn
    assert "q…" in drawn


@pytest.mark.parametrize(("columns", "rows"), [((), ()), ((Column("a"),), (("1", "2"),))])
def test_a_table_that_is_not_rectangular_is_refused(columns, rows):
    with pytest.raises(ValueError, match="column"):
        Table(None, columns, rows)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0, "0.000"),
        (-0.0, "0.000"),
        (1.0, "1.000"),
        (2 / 3, "0.667"),
        (0.9996, "0.999"),
        (1 - 2**-53, "0.999"),
        (0.0001, "0.001"),
        (5e-324, "0.001"),
        (-0.0001, "-0.001"),
        (-0.25, "-0.250"),
        (-0.99999, "-0.999"),
    ],
)
def test_a_share_shows_0_and_1_only_if_exact(value, shown):
    assert share(value) == shown


@settings(derandomize=True)
@given(st.floats(0, 1), st.integers(1, 6))
def test_a_share_is_off_by_less_than_one_unit_of_its_last_digit(value, digits):
    shown = share(value, digits=digits)
    assert abs(float(shown) - value) <= 1.000001 * 10**-digits
    assert (float(shown) in (0, 1)) == (value in (0, 1))


def test_a_share_without_digits_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        share(0.5, digits=0)


@pytest.mark.parametrize(
    ("value", "digits", "shown"),
    [
        (None, 0, "–"),
        (0, 0, "0 %"),
        (1, 0, "100 %"),
        (0.999, 0, "99 %"),
        (0.001, 0, "1 %"),
        (1 - 2**-53, 1, "99.9 %"),
        (0.29, 0, "29 %"),
        (2 / 3, 1, "66.7 %"),
    ],
)
def test_a_percentage_shows_0_and_100_only_if_exact(value, digits, shown):
    assert percent(value, digits=digits) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0.0, "0 ms"),
        (0.0001, "<1 ms"),
        (0.0123, "12 ms"),
        (0.9994, "999 ms"),
        (0.9996, "1.0 s"),
        (1.34, "1.3 s"),
        (75.0, "75.0 s"),
    ],
)
def test_a_duration_has_a_unit_that_fits(value, shown):
    assert seconds(value) == shown


def test_a_count_agrees_with_its_noun():
    assert [count(number, "query", "queries") for number in (0, 1, 3)] == [
        "0 queries",
        "1 query",
        "3 queries",
    ]


def test_importing_the_package_imports_no_rich():
    program = "import sys, chunkrecall.render; sys.exit('rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
