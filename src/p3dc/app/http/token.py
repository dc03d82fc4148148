"""Check the token of a request: as a bearer token, or as the cookie that a browser got for it."""

import hashlib
import hmac
from collections.abc import Mapping
from http.cookies import CookieError, SimpleCookie

COOKIE = "p3dc"


def is_token(given: str, token: str) -> bool:
    """Compare in a time that does not depend on how much is right."""
    return hmac.compare_digest(given.encode(), token.encode())


def cookie_for(token: str) -> str:
    """Make the value that a browser keeps instead of the token."""
    return hashlib.sha256(b"p3dc cookie " + token.encode()).hexdigest()


def carries_token(headers: Mapping[str, str], token: str) -> bool:
    """Return whether a request may pass."""
    kind, _, given = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer" and is_token(given.strip(), token):
        return True
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return False
    return cookie is not None and is_token(cookie.value, cookie_for(token))
