"""Who may ask, how much, and how often."""

import asyncio
import io
import itertools
import json
import threading
import time

import pytest

from p3dc.app.http.limits import RequestLimits
from p3dc.app.http.server import make_app
from p3dc.app.http.token import COOKIE, cookie_for
from p3dc.images.decoding import read_image_file
from tests.app.conftest import TOKEN, Mosaic, add, files, picture, told
from tests.app.http.test_uploads import BOUNDARY, part

FORM = f"multipart/form-data; boundary={BOUNDARY}"


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8765", "127.0.0.1:1", "[::1]:8765", "[::1]", "LOCALHOST:80", "127.0.0.1"]
)
def test_this_machine_may_ask_by_all_its_names(client, host):
    assert client.get("/v1/project", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8765",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "192.168.1.7:8765",
        "0.0.0.0",
        "[::2]",
        "[",
        "",
    ],
)
def test_a_name_of_another_machine_is_refused(client, host):
    for path in ("/", "/v1/project", "/v1/health", "/page/main.js"):
        sentence = told(client.get(path, headers={"Host": host}), 421, "wrong_host")
        assert sentence.endswith("Ask for localhost.")


def test_with_a_token_other_names_are_allowed(serve):
    client = serve(token=TOKEN)
    assert client.get("/v1/project", headers={"Host": "box.lan", **bearer()}).status_code == 200
    told(client.get("/v1/project", headers={"Host": "box.lan"}), 401, "token_needed")


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://localhost:9999",
        "http://localhost.evil.example",
        "file://",
        "",
        "http://[",
        "http://[::1",
        "//",
        "localhost",
    ],
)
def test_pages_of_other_origins_are_refused(client, origin):
    methods, paths = ("GET", "POST", "OPTIONS", "DELETE"), ("/v1/project", "/v1/health", "/v1/nothing", "/")
    for method, path in itertools.product(methods, paths):
        answer = client.request(method, path, headers={"Origin": origin})
        assert told(answer, 403, "other_origin") == "Pages of other origins may not use this server."
        assert not any(name.startswith("access-control-") for name in answer.headers)
    assert client.project.revision == 0


def test_the_page_itself_may_ask(client):
    for host in ("localhost:8765", "127.0.0.1:8765"):
        headers = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
        assert client.post("/v1/classes", json={"name": host}, headers=headers).status_code == 201
        other = {"Host": host, "Origin": "http://localhost:1", "Sec-Fetch-Site": "same-origin"}
        told(client.post("/v1/classes", json={"name": "x"}, headers=other), 403, "other_origin")


@pytest.mark.parametrize("site", ["cross-site", "same-site", "nonsense"])
def test_what_a_browser_says_comes_from_elsewhere_is_refused(client, site):
    told(client.get("/v1/labels", headers={"Sec-Fetch-Site": site}), 403, "other_origin")
    assert client.get("/", headers={"Sec-Fetch-Site": site}).status_code == 200, "a link may lead to the page"


def test_an_address_that_was_typed_in_is_answered(client):
    assert client.get("/v1/project", headers={"Sec-Fetch-Site": "none"}).status_code == 200


def bearer(token=TOKEN):
    return {"Authorization": f"Bearer {token}"}


ROUTES = [
    ("GET", "/v1/project"),
    ("GET", "/v1/metrics"),
    ("GET", "/v1/openapi.json"),
    ("GET", "/v1/nothing"),
    ("POST", "/v1/undo"),
    ("PUT", "/v1/model"),
    ("POST", "/v1/photos"),
    ("DELETE", "/v1/photos"),
]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("wrong"),
        bearer(TOKEN + "x"),
        bearer(TOKEN[:-1]),
        bearer(""),
        bearer("é" * 20),
        {"Authorization": TOKEN},
        {"Authorization": f"Basic {TOKEN}"},
        {"Cookie": f"{COOKIE}={TOKEN}"},
        {"Cookie": f"{COOKIE}={cookie_for('another token, long enough')}"},
        {"Cookie": "\x7f;;;=;"},
        {"Cookie": f'{COOKIE}="'},
    ],
)
def test_without_the_token_nothing_is_told(serve, headers):
    client = serve(token=TOKEN)
    encoded = {name: value.encode("latin-1") for name, value in headers.items()}
    for method, path in ROUTES:
        answer = client.request(method, path, headers=encoded)
        told(answer, 401, "token_needed")
        assert answer.headers["www-authenticate"] == "Bearer"


def test_the_page_and_health_need_no_token(serve):
    client = serve(token=TOKEN)
    assert client.get("/").status_code == 200
    assert client.get("/v1/health").json()["status"] == "ok"


@pytest.mark.parametrize("headers", [bearer(), {"Authorization": f"bearer   {TOKEN} "}])
def test_a_program_sends_the_token(serve, headers):
    assert serve(token=TOKEN).get("/v1/project", headers=headers).status_code == 200


def test_a_browser_trades_the_token_for_a_cookie_that_is_not_the_token(serve):
    client = serve(token=TOKEN)
    for wrong in ("wrong", "", TOKEN + " "):
        answer = client.post("/v1/session", json={"token": wrong})
        told(answer, 401, "wrong_token")
        assert "set-cookie" not in answer.headers
    told(client.post("/v1/session", json={"token": "x" * 1001}), 422, "invalid")
    answer = client.post("/v1/session", json={"token": TOKEN})
    assert answer.status_code == 204
    cookie = answer.headers["set-cookie"]
    assert TOKEN not in cookie
    assert {"HttpOnly", "Path=/v1", "SameSite=strict"} <= set(cookie.split("; "))
    assert client.get("/v1/project").status_code == 200, "the client sends its cookie"
    client.cookies.clear()
    told(client.get("/v1/project"), 401, "token_needed")
    other = serve(token="another token, long enough")
    told(other.get("/v1/project", headers={"Cookie": cookie.split(";")[0]}), 401, "token_needed")


def test_wrong_tokens_are_answered_slowly_and_one_at_a_time_and_keep_nobody_out(open_project):
    limits = RequestLimits(requests=2, wrong_token_seconds=0.3)
    app, body = make_app(open_project(), limits, TOKEN), json.dumps({"token": "wrong"}).encode()

    def right():
        return ask(app, Sender(b""), "GET", "/v1/project", authorization=f"Bearer {TOKEN}")

    async def race():
        await right()
        began = time.monotonic()
        wrong = [
            asyncio.create_task(ask(app, Sender(body), path="/v1/session", content_type="application/json"))
            for _ in range(5)
        ]
        wrong += [asyncio.create_task(ask(app, Sender(b""), "GET", "/v1/project", authorization="Bearer no"))]
        await asyncio.sleep(0.05)
        good = await right()
        left = sum(not each.done() for each in wrong)
        return good[0], left, [each[0] for each in await asyncio.gather(*wrong)], time.monotonic() - began

    good, left, wrong, seconds = asyncio.run(race())
    assert (good, set(wrong)) == (200, {401})
    assert left > 0
    assert seconds >= 6 * 0.3


def test_half_a_character_is_not_the_token(serve):
    client = serve(token=TOKEN)
    body = b'{"token": "\\ud800"}'
    answer = client.post("/v1/session", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code in (401, 422), answer.text


def test_a_server_without_a_token_gives_no_cookie(client):
    answer = client.post("/v1/session", json={"token": "anything"})
    assert answer.status_code == 204
    assert "set-cookie" not in answer.headers


def test_a_page_elsewhere_cannot_use_the_cookie(serve):
    client = serve(token=TOKEN)
    headers = {"Cookie": f"{COOKIE}={cookie_for(TOKEN)}", "Origin": "http://evil.example"}
    told(client.get("/v1/project", headers=headers), 403, "other_origin")


def test_a_request_that_says_it_is_too_large_is_refused_by_its_kind(serve):
    client = serve(limits=RequestLimits(bytes=3000, json_bytes=2048, model_bytes=4096))
    image = files(picture())
    assert client.post("/v1/photos", files=image).status_code == 201
    large = files(*(picture(seed=n) for n in range(20)))
    assert told(client.post("/v1/photos", files=large), 413, "too_large").startswith("The request is larger than 2 kB.")
    told(client.post("/v1/classes", json={"name": "x" * 3000}), 413, "too_large")
    raw = {"Content-Type": "application/octet-stream"}
    assert "4 kB" in told(client.put("/v1/model", content=bytes(5000), headers=raw), 413, "too_large")
    for path in ("/v1/session", "/v1/classes", "/v1/photos/x", "/v1/nothing"):
        told(client.post(path, content=bytes(3000), headers=raw), 413, "too_large")
    assert len(client.project.state.photos) == 1


@pytest.mark.parametrize("path", ["/v1/session", "/v1/photos"])
def test_requests_that_arrive_slowly_keep_nobody_out(open_project, path):
    headers = {"content_type": "application/json" if path == "/v1/session" else FORM, "transfer_encoding": "chunked"}

    async def work(app):
        slow = [asyncio.create_task(ask(app, Sender(b"--", then="stop"), path=path, **headers)) for _ in range(20)]
        await asyncio.sleep(0.1)
        assert app.metrics.n_arriving == 20
        good = await ask(app, Sender(*pieces(3)), content_type=FORM)
        return good[0], [each[0] for each in await asyncio.gather(*slow)], app.metrics.n_arriving

    limits = RequestLimits(requests=2, seconds=1.0, unknown_seconds=1.0)
    assert by_hand(open_project(), limits, work) == (201, [408] * 20, 0)


class Sender:
    """A client that sends a body piece by piece, and may stop or leave."""

    def __init__(self, *pieces, then="end"):
        self.pieces, self.then, self.sent = list(pieces), then, 0

    async def receive(self):
        if self.pieces:
            self.sent += 1
            piece = self.pieces.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(self.pieces) or self.then != "end"}
        if self.then == "leave":
            return {"type": "http.disconnect"}
        await asyncio.sleep(3600)
        raise AssertionError("nobody waits that long")


async def ask(app, sender, method="POST", path="/v1/photos", **headers):
    """Send a request to an application by hand, and return the status, the headers and the body."""
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(b"host", b"localhost")]
        + [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 2),
    }
    sent = []

    async def send(message):
        sent.append(message)

    await app(scope, sender.receive, send)
    start = sent[0]
    body = b"".join(message.get("body", b"") for message in sent[1:])
    headers = {name.decode(): value.decode() for name, value in start["headers"]}
    return start["status"], headers, json.loads(body) if body else None


def by_hand(project, limits, work):
    """Run some work with an application."""

    async def run():
        app = make_app(project, limits)
        try:
            return await asyncio.wait_for(work(app), 60)
        finally:
            app.app.state.service.close()

    return asyncio.run(run())


def pieces(n, image=None):
    body = part("a.png", picture() if image is None else image) + f"--{BOUNDARY}--\r\n".encode()
    size = -(-len(body) // n)
    return [body[start : start + size] for start in range(0, len(body), size)]


def test_a_body_in_pieces_is_put_together(open_project):
    project = open_project()
    status, _, body = by_hand(project, None, lambda app: ask(app, Sender(*pieces(7)), content_type=FORM))
    assert status == 201
    assert len(body["added"]) == 1


def test_a_body_without_a_length_is_cut_off_where_it_is_too_large(open_project):
    sender = Sender(part("a.png", b""), *[b"x" * 1000] * 1000)
    limits = RequestLimits(bytes=20_000)
    status, _, body = by_hand(open_project(), limits, lambda app: ask(app, sender, content_type=FORM))
    assert (status, body["error"]["code"]) == (413, "too_large")


def test_a_body_without_an_end_is_cut_off(open_project):
    class Endless(Sender):
        async def receive(self):
            await asyncio.sleep(0.001)
            return {"type": "http.request", "body": b"x" * 1000, "more_body": True}

    limits = RequestLimits(bytes=20_000, json_bytes=20_000, seconds=0.3)
    for kind, code in ((FORM, "invalid"), ("application/json", "not_multipart")):
        status, _, body = by_hand(open_project(), limits, lambda app, kind=kind: ask(app, Endless(), content_type=kind))
        assert (status // 100, body["error"]["code"]) == (4, code)


@pytest.mark.parametrize(
    ("path", "kind", "method"),
    [("/v1/classes", "application/json", "POST"), ("/v1/model", "application/octet-stream", "PUT")],
)
def test_other_bodies_are_cut_off_as_well(open_project, path, kind, method):
    limits = RequestLimits(json_bytes=5000, model_bytes=5000)
    sender = Sender(*[b"x" * 1000] * 100)
    status, _, body = by_hand(open_project(), limits, lambda app: ask(app, sender, method, path, content_type=kind))
    assert (status, body["error"]["code"]) == (413, "too_large")


def test_a_length_that_is_not_true_does_not_help(open_project):
    sender = Sender(part("a.png", b""), *[b"x" * 1000] * 100)
    status, _, body = by_hand(
        open_project(),
        RequestLimits(bytes=20_000),
        lambda app: ask(app, sender, content_type=FORM, content_length="10"),
    )
    assert (status, body["error"]["code"]) == (413, "too_large")


@pytest.mark.parametrize("length", ["-5", "x", "", "1e9"])
def test_a_length_that_is_no_number_is_passed_over(open_project, length):
    status, *_ = by_hand(
        open_project(), None, lambda app: ask(app, Sender(*pieces(1)), content_type=FORM, content_length=length)
    )
    assert status == 201


@pytest.mark.parametrize(
    ("path", "kind", "method"),
    [
        ("/v1/photos", FORM, "POST"),
        ("/v1/classes", "application/json", "POST"),
        ("/v1/model", "application/octet-stream", "PUT"),
    ],
)
def test_a_client_that_stops_sending_is_told_and_the_server_goes_on(open_project, path, kind, method):
    project = open_project()

    async def work(app):
        slow = await ask(app, Sender(b"--", then="stop"), method, path, content_type=kind)
        good = await ask(app, Sender(*pieces(3)), content_type=FORM)
        return slow, good, app.metrics.n_busy

    (status, _, body), good, busy = by_hand(project, RequestLimits(seconds=0.2), work)
    assert (status, body["error"]["code"]) == (408, "too_slow")
    assert body["error"]["message"] == "The request came too slowly. Send it again."
    assert good[0] == 201
    assert busy == 0


@pytest.mark.parametrize(
    ("path", "kind", "method"),
    [
        ("/v1/photos", FORM, "POST"),
        ("/v1/classes", "application/json", "POST"),
        ("/v1/model", "application/octet-stream", "PUT"),
    ],
)
def test_a_client_that_leaves_in_the_middle_is_no_fault_of_the_server(open_project, path, kind, method):
    project = open_project()

    async def work(app):
        left = await ask(app, Sender(*pieces(3)[:2], then="leave"), method, path, content_type=kind)
        return left[0], app.metrics.n_busy

    assert by_hand(project, None, work) == (400, 0)
    assert project.revision == 0


def test_a_refused_client_that_goes_on_sending_is_listened_to_for_a_while_only(open_project):
    async def work(app):
        started = time.monotonic()
        found = await ask(app, Sender(b"x" * 100, then="stop"), path="/v1/nothing")
        return found, time.monotonic() - started

    (status, *_), seconds = by_hand(open_project(), RequestLimits(seconds=0.2), work)
    assert status == 404
    assert seconds < 30


def test_past_so_many_requests_at_once_others_are_asked_to_come_again(serve, monkeypatch):
    client = serve(limits=RequestLimits(requests=3))
    go = threading.Event()
    embed = client.project.backbone.embed_crops

    def waits(pixels):
        go.wait(30)
        return embed(pixels)

    monkeypatch.setattr(client.project.backbone, "embed_crops", waits, raising=False)
    answers = []
    threads = [
        threading.Thread(
            target=lambda n=n: answers.append(client.post("/v1/photos", files=files(picture(seed=n))).status_code)
        )
        for n in range(3)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 30
    while client.app.metrics.n_busy < 3 and time.monotonic() < deadline:
        time.sleep(0.005)
    answer = client.get("/v1/project")
    assert told(answer, 503, "busy") == "Too many requests at once. Try again in a second."
    assert answer.headers["retry-after"] == "1"
    assert client.get("/v1/health").status_code == 200, "monitoring is answered under load"
    told(client.post("/v1/photos", files=files(picture(seed=9))), 503, "busy")
    assert client.get("/").status_code == 200, "the page itself is always there"
    go.set()
    for thread in threads:
        thread.join(30)
    assert answers == [201, 201, 201], "those inside are not harmed"
    assert client.get("/v1/project").status_code == 200
    assert len(client.project.state.photos) == 3


def test_requests_at_once_share_batches(serve, monkeypatch):
    client = serve()
    go, taken = threading.Event(), []
    embed = client.project.backbone.embed_crops

    def waits(pixels):
        taken.append(len(pixels))
        go.wait(30)
        return embed(pixels)

    monkeypatch.setattr(client.project.backbone, "embed_crops", waits, raising=False)
    found = []
    threads = [
        threading.Thread(target=lambda n=n: found.append((n, add(client, None, (f"{n}.png", picture(seed=n))))))
        for n in range(12)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 30
    while client.service.embedder._waiting.qsize() + sum(taken) < 12 and time.monotonic() < deadline:
        time.sleep(0.005)
    go.set()
    for thread in threads:
        thread.join(30)
    assert client.service.embedder.n_images == 12
    assert client.service.embedder.n_batches <= 3
    names = {photo.id: photo.name for photo in client.project.state.photos}
    for n, (identity,) in found:
        assert names[identity] == f"{n}.png"
        (alone,) = embed_alone(picture(seed=n))
        assert (client.project.pictures[identity].features == alone).all()


def embed_alone(image):
    backbone = Mosaic()
    return backbone.embed(backbone.preprocessing.prepare(read_image_file(io.BytesIO(image)))[None])


def test_many_changes_at_once_are_all_kept_in_some_order(serve, tmp_path):
    client = serve(tmp_path)
    revisions = []

    def work(n):
        answer = client.post("/v1/classes", json={"name": f"class {n}"})
        revisions.append(answer.json()["revision"])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(revisions) == list(range(1, 21))
    assert len(client.project.state.classes) == 20


def test_a_path_that_is_written_in_another_way_needs_the_token_too(serve):
    client = serve(token=TOKEN)
    for path in (
        "/v1/project/",
        "/v1//project",
        "//v1/project",
        "/V1/project",
        "/v1/health/../project",
        "/v1/./project",
    ):
        answer = client.get(path, follow_redirects=False)
        assert answer.status_code in (401, 404), (path, answer.status_code)


def test_a_method_of_another_kind_is_refused(client):
    for method in ("TRACE", "CONNECT", "PROPFIND", "X"):
        answer = client.request(method, "/v1/project")
        told(answer, 405, "method_not_allowed")
    assert 'method="other"' in client.get("/v1/metrics").text
