"""The service without HTTP: embed photos, change the project, keep the session of its present revision."""

import asyncio
import io
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import IO, NamedTuple

from p3dc.app.embedder import Embedder
from p3dc.app.errors import ConflictError, FailedImage, UnusableImagesError
from p3dc.app.example_set import example_set, has_example_priors
from p3dc.app.listeners import Listeners
from p3dc.app.project.library import Library, check_name
from p3dc.app.project.project import Project, adding
from p3dc.app.project.state import DRAWN_BIRDS, Class, Photo, State, new_id, photo_name
from p3dc.app.project.store import Picture
from p3dc.app.session import Session
from p3dc.app.taught import Taught, taught_key, taught_photos
from p3dc.images.decoding import ImageError


class Upload(NamedTuple):
    """An image that was sent: its name, its content and its key, if it is part of a drop."""

    name: str
    file: IO[bytes]
    key: str = ""


class Service:
    """A project and its backbone; images of more than ``max_pixels`` are refused.

    With a library, other projects of it can be opened instead.
    """

    def __init__(self, project: Project, max_pixels: int, library: Library | None = None) -> None:
        self.project, self.library = project, library
        self.embedder = Embedder(project.backbone, max_pixels)
        self.listeners = Listeners()
        project.on_change = self.listeners.wake
        self._session: Session | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Stop the threads and let other processes open the project."""
        self.embedder.close()
        self.project.close()

    def open(self, name: str) -> Project:
        """Open another project of the library, or make it, and close the present one."""
        if self.library is None:
            raise ConflictError("This server was started for one project. Start it without --project to open others.")
        with self._lock:
            if check_name(name) != self.project.name:
                opened = self.library.open(name)
                self.project.close()
                self.project, self._session = opened, None
                opened.on_change = self.listeners.wake
                self.listeners.wake()
            return self.project

    def session(self) -> Session:
        """Return what the page shows of the project's present revision."""
        with self._lock:
            revision, state, pictures = self.project.now()
            if self._session is None or self._session.revision != revision:
                self._session = Session(revision, state, pictures, self._taught(state, pictures))
            return self._session

    def _taught(self, state: State, pictures: Mapping[str, Picture]) -> Taught:
        """Return what follows from the taught photos, of this revision or of one before if they are the same."""
        key = taught_key(state)
        if self._session is not None and taught_key(self._session.state) == key:
            return self._session.taught
        return taught_photos(state, pictures, self.project.backbone, self.project.priors(state.priors))

    async def embed(
        self, uploads: Sequence[Upload], *, thumbnails: bool = True
    ) -> tuple[list[tuple[Upload, Picture]], list[FailedImage]]:
        """Embed images and return those that can be used and those that cannot; refuse if none can."""
        named = [upload._replace(name=photo_name(upload.name, self.project.limits)) for upload in uploads]
        coming = (self.embedder.embed(upload.file, with_thumbnail=thumbnails) for upload in uploads)
        found = await asyncio.gather(*coming, return_exceptions=True)
        usable: list[tuple[Upload, Picture]] = []
        failures: list[FailedImage] = []
        for upload, result in zip(named, found, strict=True):
            if isinstance(result, ImageError):
                failures.append(FailedImage(upload.name, result))
            elif isinstance(result, BaseException):
                raise result
            else:
                usable.append((upload, result))
        if not usable:
            raise UnusableImagesError(failures)
        return usable, failures

    async def add(
        self, uploads: Sequence[Upload], label: str | None, drop: str = ""
    ) -> tuple[int, list[Photo], list[FailedImage]]:
        """Add images to a class, or to the photos to be labelled; those of a drop that are there already stay as is."""
        project = self.project
        if label is not None:
            project.state.class_of(label)
        there = {photo.key for photo in project.state.photos} - {""}
        fresh = [upload for upload in uploads if upload.key not in there]
        try:
            usable, failures = await self.embed(fresh) if fresh else ([], [])
        except UnusableImagesError as error:
            if len(fresh) == len(uploads):
                raise
            usable, failures = [], [*error.failures]
        photos = [Photo(new_id(), upload.name, label, key=upload.key) for upload, _ in usable]
        pictures = {photo.id: picture for photo, (_, picture) in zip(photos, usable, strict=True)}

        def add() -> int:
            if project.keeps_originals:
                for photo, (upload, _) in zip(photos, usable, strict=True):
                    project.originals.write(photo.id, upload.file)
            title = adding(len(photos))
            return project.change(title, lambda state: state.add_photos(photos, project.limits), pictures, drop)

        try:
            revision = await asyncio.to_thread(add)
        finally:
            project.originals.remove({photo.id for photo in photos} - set(project.pictures))
        if not drop:
            return revision, photos, failures
        kept = {photo.key: photo for photo in (*photos, *project.state.photos)}
        return revision, [kept[upload.key] for upload in uploads if upload.key in kept], failures

    async def load_example_set(self) -> int:
        """Fill an empty project with the example set; its base classes take the place of the backbone's."""
        if self.project.state.classes or self.project.state.photos:
            raise ConflictError("The project is not empty. Delete its classes and photos first.")
        examples, limits = example_set(), self.project.limits
        usable, _ = await self.embed([Upload(example.name, io.BytesIO(example.content)) for example in examples])
        pictures = {new_id(): picture for _, picture in usable}

        def fill(state: State) -> State:
            classes: dict[str | None, Class] = {}
            for label in dict.fromkeys(example.label for example in examples if example.label is not None):
                state, classes[label] = state.add_class(label, limits)
            photos = [
                Photo(identity, example.name, classes[example.label].id if example.label else None)
                for identity, example in zip(pictures, examples, strict=True)
            ]
            filled = state.add_photos(photos, limits)
            is_drawn = state.priors == "backbone" and has_example_priors(self.project.backbone)
            return replace(filled, priors=DRAWN_BIRDS) if is_drawn else filled

        return await asyncio.to_thread(self.project.change, "Example set", fill, pictures)
