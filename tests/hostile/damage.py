"""Damage to files: flipped bits, cuts, spliced ranges, numbers that grow."""

LARGE = (0, 1, 2**7, 2**8 - 1, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


def flip(content, bit):
    """The content with one bit the other way."""
    damaged = bytearray(content)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def _flip_one(content, rng):
    return flip(content, int(rng.integers(8 * len(content))))


def _flip_many(content, rng):
    for bit in rng.integers(8 * len(content), size=rng.integers(2, 20)):
        content = flip(content, int(bit))
    return content


def _cut(content, rng):
    return content[: rng.integers(len(content))]


def _leave_out(content, rng):
    start, end = _range(content, rng)
    return content[:start] + content[end:]


def _splice(content, rng):
    """Copy a range over another place, or into it."""
    start, end = _range(content, rng)
    place = int(rng.integers(len(content)))
    kept = place + (end - start) * int(rng.integers(2))
    return content[:place] + content[start:end] + content[kept:]


def _grow(content, rng):
    """Put a large or otherwise remarkable number somewhere."""
    width = int(rng.choice([1, 2, 4, 8]))
    place = int(rng.integers(max(1, len(content) - width)))
    number = LARGE[rng.integers(len(LARGE))] % 2 ** (8 * width)
    spelled = number.to_bytes(width, str(rng.choice(["little", "big"])))
    return content[:place] + spelled + content[place + width :]


def _digits(content, rng):
    """Put another digit in the place of one that is spelled out."""
    places = [i for i, byte in enumerate(content[:4096]) if 48 <= byte < 58]
    if not places:
        return _grow(content, rng)
    place = places[rng.integers(len(places))]
    return content[:place] + bytes(rng.choice([b"9", b"0", b"-", b"e", b"99999999"])) + content[place + 1 :]


def _range(content, rng):
    start = int(rng.integers(len(content)))
    return start, start + int(rng.integers(1, 1 + max(1, (len(content) - start) // 4)))


KINDS = {
    "one flipped bit": _flip_one,
    "flipped bits": _flip_many,
    "cut": _cut,
    "left out": _leave_out,
    "spliced": _splice,
    "grown number": _grow,
    "another digit": _digits,
}


def damage(content, kind, rng):
    """The content with damage of one kind; edges, where headers lie, are hit as often as the rest."""
    if kind in ("one flipped bit", "flipped bits", "grown number") and len(content) > 1024:
        where = rng.integers(3)
        if where == 0:
            return KINDS[kind](content[:256], rng) + content[256:]
        if where == 1:
            return content[:-512] + KINDS[kind](content[-512:], rng)
    return KINDS[kind](content, rng)
