"""Draw the example set of the page: garden birds, and two things that are none of them.

``python scripts/make_example_photos.py`` writes ``src/p3dc/data/example-photos.zip``. The drawings, and the two of each
bird that the page begins with, were chosen to show what base classes do: without them, one robin is called a magpie.
How many labels are right in the example set therefore measures nothing.

Coordinates run from 0 to 100, and y points down. A subject is drawn around (0, 0) by a pen that knows where on the
picture it belongs.
"""

import io
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from zipfile import ZipFile, ZipInfo

from PIL import Image, ImageChops, ImageColor, ImageDraw, ImageFilter

OUT = Path(__file__).parent.parent / "src" / "p3dc" / "data" / "example-photos.zip"
SIZE = 320
OVERSAMPLING = 3
"""How many times larger a picture is drawn than it is saved."""
N_EXAMPLES = 5
OTHERS = ("hot-air balloon", "mushroom")
SEEDS = {
    "robin": (1, 4, 2, 3, 5, 6, 25),
    "blue tit": (2, 3, 1, 4, 5, 6, 7),
    "kingfisher": (1, 4, 2, 3, 5, 6, 7),
    "cardinal": (1, 3, 2, 4, 5, 6, 7),
    "magpie": (3, 4, 1, 2, 5, 6, 7),
}
"""The seeds of the drawings of each bird: five examples, of which the page takes the first two, and two queries."""

Outline = list[tuple[float, float]]


def main() -> None:
    """Write all pictures; those with a label lie in a folder of that name."""
    with ZipFile(OUT, "w") as archive:
        for label, name, number in example_set():
            file = f"{name} {number}.webp"
            archive.writestr(ZipInfo(file if label is None else f"{label}/{file}"), as_file(draw(name, number)))


def example_set() -> Iterator[tuple[str | None, str, int]]:
    """Yield label, subject and number: five pictures of each bird, then those to be labelled, which have no label."""
    yield from ((name, name, number) for name in BIRDS for number in range(1, N_EXAMPLES + 1))
    yield from ((None, name, N_EXAMPLES + 1) for name in BIRDS)
    yield from ((None, name, 1) for name in OTHERS)
    yield from ((None, name, N_EXAMPLES + 2) for name in BIRDS)


def draw(name: str, number: int) -> Image.Image:
    """Draw a subject; the same number gives the same picture."""
    if name in BIRDS:
        seed = SEEDS[name][number - 1]
        return draw_bird(BIRDS[name], f"{name} {seed}", seed + 2 * list(BIRDS).index(name))
    page = blank()
    {"hot-air balloon": flight, "mushroom": clearing}[name](page, Random(f"{name} {number}"))
    return page.image.reduce(OVERSAMPLING)


def draw_bird(coat: "Plumage", seed: str, place: int) -> Image.Image:
    """Draw a bird on a bough, in the season of a place; the same seed gives the same picture."""
    page = blank()
    garden(page, Random(seed), place, coat)
    return page.image.reduce(OVERSAMPLING)


def blank() -> "Pen":
    """Return a pen on an empty page."""
    return Pen(Image.new("RGB", (SIZE * OVERSAMPLING, SIZE * OVERSAMPLING)))


def as_file(image: Image.Image) -> bytes:
    """Return a picture as a WebP file."""
    buffer = io.BytesIO()
    image.save(buffer, "WEBP", quality=82, method=6)
    return buffer.getvalue()


def mix(one: str, other: str, share: float) -> str:
    """Mix two colours: a share of 0 gives the first, 1 the other."""
    pairs = zip(ImageColor.getrgb(one), ImageColor.getrgb(other), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in pairs)


def light(colour: str, share: float = 0.3) -> str:
    """Mix a colour with cream."""
    return mix(colour, "#fffbe8", share)


def dark(colour: str, share: float = 0.3) -> str:
    """Mix a colour with the blue of shadows."""
    return mix(colour, "#1d1a40", share)


def oval(x: float, y: float, rx: float, ry: float | None = None, start: float = 0, stop: float = 360) -> Outline:
    """Return an ellipse, or its arc between two angles, clockwise from the right."""
    angles = [math.radians(start + (stop - start) * step / 48) for step in range(49)]
    return [(x + rx * math.cos(angle), y + (rx if ry is None else ry) * math.sin(angle)) for angle in angles]


def smooth(*points: tuple[float, float], closed: bool = True) -> Outline:
    """Return a Catmull-Rom spline through points."""
    count, line = len(points), []
    for i in range(count if closed else count - 1):
        places = [(i + k) % count if closed else min(max(i + k, 0), count - 1) for k in (-1, 0, 1, 2)]
        (ax, ay), (bx, by), (cx, cy), (dx, dy) = (points[place] for place in places)
        for t in (step / 10 for step in range(10)):
            p, q, s = t * (t * (2 - t) - 1) / 2, 1 + t * t * (1.5 * t - 2.5), t * t * (t - 1) / 2
            r = 1 - p - q - s
            line.append((p * ax + q * bx + r * cx + s * dx, p * ay + q * by + r * cy + s * dy))
    return line if closed else [*line, points[-1]]


def ribbon(line: Outline, width: float, end: float | None = None) -> Outline:
    """Return the outline of a line that is `width` wide at its beginning and `end` wide at its end."""
    left, right, last = [], [], len(line) - 1
    for i, (x, y) in enumerate(line):
        (ax, ay), (bx, by) = line[max(i - 1, 0)], line[min(i + 1, last)]
        half = (width + ((width if end is None else end) - width) * i / last) / 2 / (math.dist((ax, ay), (bx, by)) or 1)
        left.append((x - (by - ay) * half, y + (bx - ax) * half))
        right.append((x + (by - ay) * half, y - (bx - ax) * half))
    return left + right[::-1]


@dataclass(frozen=True)
class Pen:
    """Draws outlines on an image: moved, scaled, turned by degrees and mirrored."""

    image: Image.Image
    x: float = 0.0
    y: float = 0.0
    scale: float = 1.0
    turn: float = 0.0
    mirror: bool = False

    def at(self, x: float, y: float, scale: float, turn: float = 0.0, mirror: bool = False) -> "Pen":
        """Return a pen for a subject on the page."""
        return replace(self, x=x, y=y, scale=scale, turn=turn, mirror=mirror)

    def _place(self, outline: Outline) -> Outline:
        unit = self.image.width / 100
        cos, sin = (self.scale * unit * f(math.radians(self.turn)) for f in (math.cos, math.sin))
        x, y, side = self.x * unit, self.y * unit, -1 if self.mirror else 1
        return [(x + cos * side * a - sin * b, y + sin * side * a + cos * b) for a, b in outline]

    def fill(
        self,
        outline: Outline,
        colour: str,
        to: str | None = None,
        *,
        alpha: float = 1.0,
        within: Outline | None = None,
        blur: float = 0.0,
    ) -> None:
        """Fill an outline with a colour, or with a gradient to another one, downwards and to the right."""
        points = self._place(outline)
        if to is None and alpha == 1 and within is None and not blur:
            ImageDraw.Draw(self.image).polygon(points, colour)
            return
        radius = blur * self.scale * self.image.width / 100
        (left, top), (right, bottom) = ([f(axis) for axis in zip(*points, strict=True)] for f in (min, max))
        x, y = max(0, int(left - 3 * radius)), max(0, int(top - 3 * radius))
        width = min(self.image.width, int(right + 3 * radius) + 2) - x
        height = min(self.image.height, int(bottom + 3 * radius) + 2) - y
        if width <= 0 or height <= 0:
            return
        coarse = 6 if blur else 1
        mask = Image.new("L", (-(-width // coarse), -(-height // coarse)))
        ImageDraw.Draw(mask).polygon([((a - x) / coarse, (b - y) / coarse) for a, b in points], round(255 * alpha))
        if blur:
            soft = mask.filter(ImageFilter.GaussianBlur(radius / coarse))
            mask = soft.resize((width, height), Image.Resampling.BILINEAR)
        if within is not None:
            border = Image.new("L", (width, height))
            ImageDraw.Draw(border).polygon([(a - x, b - y) for a, b in self._place(within)], 255)
            mask = ImageChops.multiply(mask, border)
        paint: str | Image.Image = colour
        if to is not None:
            paint = _gradient([colour, mix(colour, to, 0.35), mix(colour, to, 0.65), to], (width, height))
        self.image.paste(paint, (x, y, x + width, y + height), mask)


def _gradient(colours: Sequence[str], size: tuple[int, int]) -> Image.Image:
    """Blend colours over a rectangle, two in each row."""
    small = Image.new("RGB", (2, len(colours) // 2))
    small.putdata([ImageColor.getrgb(colour) for colour in colours])
    return small.resize(size, Image.Resampling.BILINEAR, (0.5, 0.5, 1.5, small.height - 0.5))


SEASONS = [  # three colours of the sky, one of the hills, one of leaves, blossom or snow
    ("#8ed1e8", "#cdeaf0", "#fdf3e4", "#a8cf9a", "#f7b6c6"),
    ("#f2a488", "#f9cfa4", "#fdebc8", "#c79a5b", "#e0752f"),
    ("#6fb9e6", "#b4dff0", "#e9f5e0", "#79b36a", "#6ba353"),
    ("#8fa8cf", "#bccbe3", "#dde4f0", "#d5dff0", "#ffffff"),
    ("#7d78b8", "#cf9bbd", "#fac9ab", "#7f7ba8", "#4d8a6d"),
]
BLOSSOM, SNOW = 0, 3


def landscape(page: Pen, rng: Random, season: int) -> None:
    """Draw the sky, its sun and clouds, and hills."""
    *sky, green, _ = SEASONS[season]
    page.image.paste(_gradient([colour for colour in (*sky, sky[-1]) for _ in range(2)], page.image.size))
    x, y, radius = rng.uniform(10, 90), rng.uniform(12, 35), rng.uniform(5, 8)
    page.fill(oval(x, y, radius * 2), "#fff3c4", alpha=0.5, blur=radius * 0.8)
    page.fill(oval(x, y, radius), "#fffbe8", "#fff0bb")
    for _ in range(4):
        x, y, size = rng.uniform(0, 100), rng.uniform(12, 60), rng.uniform(6, 12)
        for shade, lift in ((0.55, 0.0), (0.85, 0.12)):
            for k in range(-2, 3):
                rise = size * (0.5 - 0.17 * abs(k)) * rng.uniform(0.9, 1.3)
                puff = oval(x + k * size * 0.45, y - lift * size, size * (0.5 - lift), rise, 180, 360)
                page.fill(puff, mix(sky[1], "#ffffff", shade))
    for k in range(3):
        phase, pace, colour = rng.uniform(0, 6), rng.uniform(0.045, 0.08), mix(green, sky[1], 0.6 - 0.3 * k)
        ridge = [(a, 76 + 8 * k - (4 - k) * math.sin(a * pace + phase)) for a in range(-4, 108, 4)]
        page.fill([*ridge, (104, 101), (-4, 101)], colour, dark(colour, 0.2))


def grass(page: Pen, rng: Random, y: float, colour: str, count: int) -> None:
    """Draw blades of grass from a height down to the lower edge."""
    for i in range(count):
        x, base, tall, lean = rng.uniform(-2, 102), y + (103 - y) * i / count, rng.uniform(4, 9), rng.uniform(-3, 3)
        tint = mix(light(colour, 0.2), dark(colour), rng.random())
        blade = [(x - 0.7, base), (x + lean * 0.3, base - tall * 0.6), (x + lean, base - tall), (x + 0.7, base)]
        page.fill(blade, tint)


def bough(page: Pen, rng: Random, season: int) -> None:
    """Draw a bough in bloom, in leaf or under snow."""
    line = smooth((-8, 84), (25, 80 + rng.uniform(-2, 2)), (60, 81), (108, 75), closed=False)
    twigs = [smooth((x, 80), (x + 6, 70), (x + 7, 58 + rng.uniform(-6, 6)), closed=False) for x in (2, 86)]
    for each, width in ((line, 6.5), *((twig, 2.4) for twig in twigs)):
        page.fill(ribbon(each, width, width * 0.5), "#5b3d2e")
        page.fill(ribbon([(x, y - width * 0.25) for x, y in each], width * 0.2), "#8c6347")
    colour = SEASONS[season][4]
    for x, y in [rng.choice(twig[4:]) for twig in twigs * 4] + [rng.choice(line) for _ in range(7)]:
        pen = page.at(x + rng.uniform(-3, 3), y + rng.uniform(-2, 2), rng.uniform(0.7, 1.1), rng.uniform(0, 360))
        if season == BLOSSOM:
            for angle in range(0, 360, 72):
                pen.fill(oval(*oval(0, 0, 2.3, 2.3, angle)[0], 2), light(colour, 0.4), colour)
            pen.fill(oval(0, 0, 1.1), "#f3c244")
        elif season != SNOW:
            pen.fill(smooth((0, 0), (4, -3.4), (11, 0), (4, 3.4)), light(colour, 0.3), dark(colour, 0.15))
            pen.fill(ribbon([(-2, 0), (8, 0)], 0.6, 0.2), dark(colour, 0.3))
    if season == SNOW:
        page.fill([*((x, y - 4 + 0.6 * math.sin(x * 0.5)) for x, y in line), *line[::-1]], "#ffffff")
        for _ in range(50):
            page.fill(oval(rng.uniform(0, 100), rng.uniform(0, 100), rng.uniform(0.3, 0.9)), "#ffffff", alpha=0.85)


@dataclass(frozen=True)
class Plumage:
    """The colours of a bird, and the lengths of its bill, tail and crest."""

    back: str
    cap: str
    face: str
    cheek: str
    breast: str
    belly: str
    wing: str
    bar: str
    bill: str
    stripe: str
    reach: float = 8
    tail: float = 24
    crest: float = 0


BIRDS = {
    "robin": Plumage("#975", "#864", "#e63", "#e63", "#e63", "#fed", "#764", "#a86", "#433", "#e63"),
    "blue tit": Plumage("#8a6", "#48d", "#fff", "#fff", "#fd4", "#fe7", "#37c", "#fff", "#345", "#236", 5, 22),
    "kingfisher": Plumage("#2ab", "#18a", "#e83", "#ffe", "#f83", "#fa5", "#178", "#6dd", "#334", "#18a", 24, 14),
    "cardinal": Plumage("#c33", "#d33", "#223", "#d44", "#d44", "#e65", "#a23", "#c44", "#f83", "#d44", 7, 26, 16),
    "magpie": Plumage("#224", "#223", "#223", "#223", "#223", "#fff", "#258", "#fff", "#223", "#223", 11, 30),
}


def songbird(pen: Pen, coat: Plumage) -> None:
    """Draw a bird that looks to the left; its feet are at (0, 33)."""
    for x in (-5, 4):
        pen.fill(ribbon([(x, 20), (x - 1, 33)], 1.3), "#7a5138")
        for toe in (-4, -1, 3):
            claw = smooth((x - 1, 31), (x + toe, 32.6), (x + toe - 0.5, 35), closed=False)
            pen.fill(ribbon(claw, 1.5, 0.8), "#8d6043")
    end = coat.tail
    for k, drop in enumerate((5, 0)):
        tail = smooth((12, 4 + drop), (18 + end, 14 + end * 0.5 + drop), (17 + end, 18 + end * 0.5 + drop), (8, 18))
        pen.fill(tail, dark(coat.wing, 0.25 - 0.2 * k), dark(coat.wing, 0.45))
    pen.fill([(-23, -19.5), (-25 - coat.reach, -13.5), (-23, -14.5)], light(coat.bill, 0.25), coat.bill)
    pen.fill([(-23, -14.5), (-25 - coat.reach * 0.9, -13.3), (-23, -11)], dark(coat.bill, 0.25))
    crest = smooth((-23, -26), (-13, -29 - coat.crest * 0.5), (-3, -25 - coat.crest), (-4, -24), (0, -18))
    pen.fill(crest, light(coat.cap, 0.1), dark(coat.cap, 0.15))
    head = [(2, -20), (-6, -29), (-15, -32), (-23, -27), (-26, -17), (-23, -8)]
    body = smooth(*head, (-25, 4), (-20, 17), (-7, 25), (8, 23), (20, 14), (20, 4), (12, -8))
    pen.fill(body, light(coat.back, 0.15), dark(coat.back, 0.15))
    for colour, patch in (
        (coat.belly, smooth((-34, -4), (-12, 0), (4, 10), (22, 20), (6, 34), (-30, 30))),
        (coat.breast, smooth((-34, -12), (-16, -9), (-7, 2), (-7, 12), (-16, 17), (-32, 16))),
        (coat.cheek, smooth((-26, -24), (-12, -24), (-1, -16), (-6, -7), (-20, -5), (-27, -9))),
        (coat.face, smooth((-34, -26), (-19, -26), (-15, -18), (-17, -9), (-24, -5), (-34, -8))),
        (coat.cap, smooth((-34, -28), (-22, -24.5), (-10, -23), (0, -14), (5, -20), (0, -40), (-28, -42))),
    ):
        pen.fill(patch, light(colour, 0.1), dark(colour, 0.1), within=body)
    pen.fill(ribbon(smooth((-25, -17), (-16, -19), (-2, -15), closed=False), 2.2, 1.4), coat.stripe, within=body)
    pen.fill(smooth((-30, 30), (-14, 21), (4, 18), (22, 8), (26, 34)), "#2b1f4d", alpha=0.16, within=body)
    pen.fill(oval(-13, -26, 6, 2.6), "#ffffff", alpha=0.25, blur=1.2)
    wing = smooth((-6, -5), (4, -9), (14, -2), (25, 12), (35, 24), (22, 21), (6, 18), (-5, 9))
    pen.fill([(x + 0.5, y + 2) for x, y in wing], "#2b1f4d", alpha=0.2, blur=0.8)
    pen.fill(wing, light(coat.wing, 0.15), dark(coat.wing, 0.3))
    mantle = smooth((-8, -7), (6, -11), (15, -1), (9, 7), (-5, 8))
    pen.fill(mantle, light(coat.back, 0.1), dark(coat.back, 0.1), within=wing)
    pen.fill(ribbon(smooth((-5, 9), (4, 9), (14, 0), closed=False), 3.4), coat.bar, within=wing)
    for k in range(4):
        quill = smooth((1 + 3 * k, 13 - 2.5 * k), (14 + 2 * k, 17 - 1.5 * k), (32, 23), closed=False)
        pen.fill(ribbon(quill, 0.8, 0.3), mix(coat.wing, coat.bar, 0.5), within=wing)
    pen.fill(oval(-17.5, -18.5, 3.5), light(coat.face, 0.5))
    pen.fill(oval(-17.5, -18.5, 2.9), "#1d1626")
    pen.fill(oval(-18.6, -19.6, 1.0), "#ffffff")


def garden(page: Pen, rng: Random, place: int, coat: Plumage) -> None:
    """Draw a bird on a bough."""
    season = place % len(SEASONS)
    landscape(page, rng, season)
    for _ in range(6):
        bush = oval(rng.uniform(0, 100), rng.uniform(60, 100), rng.uniform(3, 8))
        page.fill(bush, SEASONS[season][4], alpha=0.35, blur=1)
    bough(page, rng, season)
    scale = rng.uniform(0.82, 1.02)
    songbird(page.at(rng.uniform(43, 57), 79 - 33 * scale, scale, rng.uniform(-8, 8), rng.random() < 0.5), coat)


def flight(page: Pen, rng: Random) -> None:
    """Draw a hot-air balloon and another one far away."""
    landscape(page, rng, 2)
    balloon(page.at(84, 50, 0.22), "#2a9d8f", "#f4d35e", "#ee6c4d")
    balloon(page.at(45, 44, 1.05, 5), "#e4572e", "#ffd166", "#fff3dc")


def balloon(pen: Pen, one: str, two: str, three: str) -> None:
    """Draw a hot-air balloon in three colours."""

    def panel(rx: float) -> Outline:
        right = [(rx * 0.72, -26.0), (rx, -8.0), (rx * 0.78, 9.0), (rx * 0.28, 24.0)]
        return smooth((0, -31), *right, (0, 25.5), *((-x, y) for x, y in right[::-1]))

    whole = panel(28)
    for x in (-1, -0.35, 0.35, 1):
        pen.fill(ribbon([(x * 7.4, 24), (x * 4, 38)], 0.5), "#6b4a35")
    for rx, colour in ((28, one), (22.5, two), (15, one), (6, two)):
        pen.fill(panel(rx), light(colour, 0.22), dark(colour, 0.14))
    band = [(x, -9 + 0.006 * x * x) for x in range(-30, 31, 2)]
    hem = [(x, y + 5 + 3 * (k % 2)) for k, (x, y) in enumerate(band)]
    pen.fill([*band, *hem[::-1]], three, dark(three, 0.15), within=whole)
    pen.fill(smooth((31, -34), (30, 28), (4, 27), (17, 8), (21, -10), (14, -31)), "#3a2358", alpha=0.2, within=whole)
    pen.fill(oval(-13, -14, 4.5, 9), "#ffffff", alpha=0.35, blur=1.5)
    pen.fill(oval(0, 24.6, 7.6, 1.7), dark(one, 0.45))
    pen.fill(smooth((0, 25), (2, 29), (0, 31.5), (-2, 29)), "#ffe08a", "#ff9838")
    basket = smooth((-5, 38), (0, 37.6), (5, 38), (4.8, 45), (0, 46), (-4.8, 45))
    pen.fill(basket, "#d9a066", "#8a5530")
    for y in (38.5, 40.5, 42.5, 44.5):
        pen.fill(ribbon([(-6, y), (6, y)], 0.6), "#8a5530", within=basket)


def clearing(page: Pen, rng: Random) -> None:
    """Draw two mushrooms on a meadow."""
    landscape(page, rng, 0)
    grass(page, rng, 78, "#86b56f", 60)
    mushroom(page.at(78, 74, 0.5, 9, True), "#d93a2f")
    mushroom(page.at(44, 62, 1.1, -5), "#d93a2f")
    grass(page, rng, 90, "#6a9f58", 60)


def mushroom(pen: Pen, cap: str) -> None:
    """Draw a mushroom with spots."""
    pen.fill(oval(0, 27, 20, 4), "#22331f", alpha=0.45, blur=2)
    stem = smooth((-6, -12), (6, -12), (6.5, 5), (10, 22), (5, 28), (-6, 28), (-10.5, 22), (-6.8, 5))
    pen.fill(stem, "#fffaf0", "#d6c3a3")
    pen.fill(smooth((2, -14), (10, -12), (14, 30), (3, 30), (5, 8)), "#8a6a55", alpha=0.25, within=stem)
    under = oval(0, -11, 30, 7.5)
    pen.fill(under, "#f6e6c8", "#c9a97c")
    for k in range(-9, 10):
        pen.fill(ribbon([(k * 0.7, -14), (k * 3.4, -2)], 0.3, 0.5), "#b89566", within=under)
    pen.fill(smooth((-8, -3), (0, -4.5), (8, -3), (11, 4), (5, 3), (0, 5), (-5, 3), (-11, 4)), "#fffaf0", "#dccbab")
    crown = [(-33, -10), (-28, -27), (-13, -39), (3, -41), (20, -35), (31, -22), (33, -9)]
    dome = smooth(*crown, (22, -13), (0, -15.5), (-22, -13))
    pen.fill(dome, light(cap, 0.25), dark(cap, 0.25))
    pen.fill(smooth((36, -40), (38, -2), (0, -10), (20, -18), (26, -30)), "#3a1436", alpha=0.2, within=dome)
    for x, y, size in ((-20, -23, 4), (-5, -31, 5), (12, -25, 4), (24, -18, 3), (-9, -19, 2.5), (9, -37, 3)):
        pen.fill(oval(x, y, size, size * 0.75), "#fffdf5", "#efdcc4", within=dome)
    pen.fill(smooth((-24, -24), (-14, -35), (-8, -37), (-16, -29)), "#ffffff", alpha=0.3, within=dome)


if __name__ == "__main__":
    main()
