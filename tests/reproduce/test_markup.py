from html.parser import HTMLParser

from p3dc.reproduce.latex import to_latex
from p3dc.reproduce.markup import Bullets, Code, Contents, Heading, Paragraph, Picture, to_html, to_markdown
from p3dc.reproduce.tabular import Table, best_cells

TABLE = Table(
    ["method", "accuracy"], [["group"], ["a|b", "1 ± 2"], ["c_d", "2"]], "50 % note", "birds", {(2, 1)}, frozenset({2})
)
BLOCKS = (
    Heading("Birds & <bees>", 1),
    Contents(),
    Heading("One"),
    Paragraph("Some <script>alert(1)</script> text."),
    Heading("Table 1: rows", 3),
    TABLE,
    Heading("Two"),
    Heading("Table 1: rows", 3),
    Bullets(["one", "two 5-shot"]),
    Code("p3dc --out 'a b'"),
)


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.targets, self.places = [], [], []

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.targets += [values["href"]] if "href" in values else []
        self.places += [f"#{values['id']}"] if "id" in values else []
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_html_escapes_what_it_is_given():
    page = to_html(BLOCKS, "Title & more")
    assert "<script" not in page
    assert "Birds &amp; &lt;bees&gt;" in page
    assert '<tr class="own"><td>c_d</td><td><strong>2</strong></td></tr>' in page
    assert '<th colspan="2" scope="rowgroup">group</th>' in page


def test_the_contents_lead_to_every_section():
    links = Links()
    links.feed(to_html(BLOCKS, "Title"))
    assert links.open == []
    assert links.targets == ["#one", "#table-1-rows", "#two", "#table-1-rows-1"]
    assert set(links.targets) <= set(links.places)
    assert len(set(links.places)) == len(links.places)


def test_markdown_has_the_same_content(tmp_path):
    text = to_markdown([*BLOCKS, Picture(tmp_path / "figures" / "x.png", "Figure")], tmp_path)
    assert "| a\\|b | 1 ± 2 |" in text
    assert "| ▸ c_d | **2** |" in text
    assert "![Figure](figures/x.png)" in text
    assert "  - [Table 1: rows](#table-1-rows-1)" in text


def test_latex_escapes_and_marks():
    text = to_latex(TABLE)
    assert r"\textit{c\_d} & \textbf{2} \\" in text
    assert r"a|b & 1 $\pm$ 2 \\" in text
    assert r"\caption{50 \% note}" in text
    assert text.count("{") == text.count("}")


def test_the_best_of_each_column_is_found_among_the_rows_that_are_compared():
    rows = [["group"], ["a", "1.00 ± 9", "3.00"], ["b", "2.00 ± 1", "—"], ["c", "2.00 ± 2", "1.00"]]
    assert best_cells(rows) == {(2, 1), (3, 1), (1, 2)}
    assert best_cells(rows, [1, 3]) == {(3, 1), (1, 2)}
    assert best_cells([["a", "—"]]) == set()
