# Part of Stem, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Documents out of Debian packages: what is in each register."""

import collections
import html.parser
import os
import re
import subprocess

Document = collections.namedtuple("Document", "name paragraphs")

# A longer page or section gives its beginning, so that a set of a given size
# has many documents.
MOST_CHARACTERS = 6000

BLOCKS = {"p", "li", "dt", "dd", "tr", "pre", "div", "section", "table", "ul",
          "ol", "dl", "blockquote", "hr", "center", "aside", "figure", "h1",
          "h2", "h3", "h4", "h5", "h6"}
UNREAD = {"head", "script", "style", "nav", "form", "title"}
VOID = {"br", "hr", "img", "input", "link", "meta", "col"}


class PageText(html.parser.HTMLParser):
    """The paragraphs of a page as (tag that began it, text). A preformatted
    block is one paragraph and keeps its lines; the cells of a table's row are
    one paragraph."""

    def __init__(self, page, begin=""):
        super().__init__()
        self.paragraphs = []
        self.kind, self.pieces = "p", []
        self.unread = self.preformatted = 0
        self.skipping = None
        self.feed(page[page.index(begin):])
        self.end_paragraph("p")

    def end_paragraph(self, next_kind):
        text = "".join(self.pieces)
        if self.kind == "pre":
            text = text.strip("\n").rstrip()
        else:
            lines = [" ".join(line.split()) for line in text.split("\n")]
            text = "\n".join(line for line in lines if line)
        if text:
            self.paragraphs.append((self.kind, text))
        self.kind, self.pieces = next_kind, []

    def handle_starttag(self, tag, attributes):
        classes = (dict(attributes).get("class") or "").split()
        if tag in UNREAD:
            self.unread += 1
        elif tag == "a" and "headerlink" in classes:
            self.skipping = "a"
        elif tag == "br":
            self.pieces.append("\n")
        elif tag in ("td", "th") and self.pieces:
            self.pieces.append("  ")
        elif tag in BLOCKS and self.kind != "tr":
            self.end_paragraph(tag)
            self.preformatted += tag == "pre"

    def handle_endtag(self, tag):
        if tag in UNREAD:
            self.unread -= 1
        elif tag == self.skipping:
            self.skipping = None
        elif tag in BLOCKS and (self.kind != "tr" or tag == "tr"):
            self.end_paragraph("p")
            self.preformatted -= tag == "pre"

    def handle_data(self, data):
        if self.unread or self.skipping:
            return
        # Outside preformatted text a line's end is a space.
        self.pieces.append(data if self.preformatted
                           else data.replace("\n", " "))


def read(*path):
    with open(os.path.join(*path), encoding="utf-8", errors="replace") as file:
        return file.read()


def shortened(name, paragraphs):
    kept, size = [], 0
    for paragraph in paragraphs:
        if size and size + len(paragraph) > MOST_CHARACTERS:
            break
        kept.append(paragraph)
        size += len(paragraph)
    return Document(name, kept)


def faq(root):
    """The sections of An Anarchist FAQ, cut where a heading begins."""
    folder = os.path.join(root, "usr/share/doc/anarchism/html")
    for page in sorted(os.listdir(folder)):
        if not re.match(r"(sec|append)\w+\.html$", page):
            continue
        sections = [[]]
        for kind, text in PageText(read(folder, page), "<body").paragraphs:
            if kind in ("h1", "h2", "h3"):
                sections.append([])
            sections[-1].append(text)
        for number, section in enumerate(sections):
            yield shortened(f"{page}#{number}", section)


def pydoc(root):
    """The pages of the Python documentation, without the tables of contents."""
    doc = os.path.join(root, "usr/share/doc")
    manual = next(name for name in sorted(os.listdir(doc))
                  if os.path.isdir(os.path.join(doc, name, "html/library")))
    top = os.path.join(doc, manual, "html")
    for folder, _, pages in sorted(os.walk(top)):
        for page in sorted(pages):
            path = os.path.join(folder, page)
            name = os.path.relpath(path, top)
            if (folder == top or not page.endswith(".html")
                    or page in ("index.html", "changelog.html")):
                continue
            text = PageText(read(path), '<div class="body"').paragraphs
            yield shortened(name, [paragraph for _, paragraph in text])


def wordnet(root):
    """Glosses of neighbouring synsets of one lexicographer file, about 400
    words together, a gloss a line."""
    def document():
        return Document(f"{part}.{current}@{first}", glosses)
    for part in ("noun", "verb", "adj", "adv"):
        current, first, glosses, words = None, 0, [], 0
        for line in read(root, "usr/share/wordnet",
                         f"data.{part}").splitlines():
            if line.startswith(" "):  # the licence
                continue
            fields, _, gloss = line.partition(" | ")
            offset, lexicographer = fields.split()[:2]
            if glosses and (words >= 400 or lexicographer != current):
                yield document()
                glosses, words = [], 0
            if not glosses:
                current, first = lexicographer, int(offset)
            glosses.append(" ".join(gloss.split()))
            words += len(glosses[-1].split())
        yield document()


def kjv(root):
    """Neighbouring chapters of one book of the King James Bible, a verse a
    line. The text's format is read by the program that Debian has for it."""
    done = subprocess.run(
        [os.path.join(root, "usr/bin/bible"), "-p",
         os.path.join(root, "usr/lib"), "-f", "gen1:1-rev22:21"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True, text=True)
    chapters = {}
    for line in done.stdout.splitlines():
        place, verse = line.split(" ", 1)
        chapters.setdefault(place.split(":")[0], []).append(verse)
    book, first, verses = None, None, []
    for chapter, text in chapters.items():
        its_book = re.match(r"\d?\D+", chapter).group(0)
        full = sum(map(len, verses)) + sum(map(len, text)) > MOST_CHARACTERS
        if verses and (its_book != book or full):
            yield shortened(first, verses)
            verses = []
        if not verses:
            book, first = its_book, chapter
        verses = verses + text
    yield shortened(first, verses)
