"""Formats of files, told by their first bytes."""

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "AVIF")
"""Formats that Pillow reads by itself, by its names; AVIF where it was built with it."""

IN_WORDS = "JPEG, PNG, WebP, BMP, GIF, TIFF, AVIF or HEIC"

BEGINNINGS = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"GIF8": "GIF",
    b"BM": "BMP",
    b"II*\0": "TIFF",
    b"MM\0*": "TIFF",
    b"\xff\x0a": "JPEG XL",
    b"\0\0\0\x0cJXL ": "JPEG XL",
    b"\0\0\0\x0cjP  ": "JPEG 2000",
    b"\xff\x4f\xff\x51": "JPEG 2000",
    b"8BPS": "Photoshop",
    b"%PDF": "PDF",
    b"%!PS": "PostScript",
    b"<svg": "SVG",
    b"<?xml": "XML or SVG",
    b"<!DOCTYPE": "HTML",
    b"<html": "HTML",
    b"{": "JSON or text",
    b"PK\x03\x04": "zip",
    b"\x1f\x8b": "gzip",
    b"FUJIFILM": "Fujifilm raw",
    b"IIRO": "Olympus raw",
    b"IIU\0": "Panasonic raw",
    b"\x1aE\xdf\xa3": "Matroska or WebM",
    b"\0\0\x01\0": "icon",
    b"version https://git-lfs": "Git LFS pointer",
}
"""First bytes of files, and what they are called."""

BRANDS = {b"avif": "AVIF", b"avis": "AVIF", b"crx ": "Canon raw", b"qt  ": "QuickTime", b"jxl ": "JPEG XL"}
HEIF_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs", b"mif1", b"msf1"})
"""Brands of files with the box structure of MP4."""


def is_heif(head: bytes) -> bool:
    """Return whether a file is HEIC or HEIF.

    Files of the general brand are, unless they are compatible with AVIF.
    """
    return _brand(head) in HEIF_BRANDS and b"avif" not in head


def format_name(head: bytes) -> str | None:
    """Return what the format of a file is called, or None where its first bytes are not known.

    Examples
    --------
    >>> from p3dc.images.file_formats import format_name
    >>> format_name(b"%PDF-1.7"), format_name(b"RIFF1234WEBPVP8 "), format_name(b"hello")
    ('PDF', 'WebP', None)
    """
    brand = _brand(head)
    if brand is not None:
        return "HEIC" if is_heif(head) else "AVIF" if b"avif" in head else BRANDS.get(brand, "MP4")
    if head.startswith(b"RIFF"):
        return {b"WEBP": "WebP", b"AVI ": "AVI"}.get(head[8:12])
    return next((name for beginning, name in BEGINNINGS.items() if head.startswith(beginning)), None)


def _brand(head: bytes) -> bytes | None:
    return head[8:12] if head[4:8] == b"ftyp" else None
