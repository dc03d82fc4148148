from p3dc.reproduce.markup import Bullets, Heading, Paragraph, Picture, Table, to_html, to_markdown

BLOCKS = (
    Heading("Birds & <bees>", 1),
    Paragraph("Some <script>alert(1)</script> text."),
    Bullets(["one", "two"]),
    Table(["method", "accuracy"], [["group"], ["a|b", "1"], ["c", "2"]], "note", frozenset({2})),
)


def test_html_escapes_what_it_is_given():
    page = to_html(BLOCKS, "Title & more")
    assert "<script" not in page
    assert "Birds &amp; &lt;bees&gt;" in page
    assert '<tr class="strong"><td>c</td><td>2</td></tr>' in page
    assert '<th colspan="2" scope="rowgroup">group</th>' in page


def test_markdown_has_the_same_content(tmp_path):
    text = to_markdown([*BLOCKS, Picture(tmp_path / "figures" / "x.png", "Figure")], tmp_path)
    assert "| a\\|b | 1 |" in text
    assert "| **c** | **2** |" in text
    assert "![Figure](figures/x.png)" in text
