"""The service without HTTP: embed photos, change the project, keep the session of its present revision."""

import asyncio
import io
import threading
from collections.abc import Sequence
from typing import IO, NamedTuple

from p3dc.app.embedder import Embedder
from p3dc.app.errors import ConflictError, FailedImage, UnusableImagesError
from p3dc.app.example_set import example_set
from p3dc.app.project.project import Project
from p3dc.app.project.state import Class, Photo, State, new_id, photo_name
from p3dc.app.project.store import Picture
from p3dc.app.session import Session
from p3dc.images.decoding import ImageError


class Upload(NamedTuple):
    """An image that was sent: its name and its content."""

    name: str
    file: IO[bytes]


class Service:
    """A project and its backbone; images of more than ``max_pixels`` are refused."""

    def __init__(self, project: Project, max_pixels: int) -> None:
        self.project = project
        self.embedder = Embedder(project.backbone, max_pixels)
        self._session: Session | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Stop the threads and let other processes open the project."""
        self.embedder.close()
        self.project.store.close()

    def session(self) -> Session:
        """Return what the page shows of the project's present revision."""
        with self._lock:
            revision, state, pictures = self.project.now()
            if self._session is None or self._session.revision != revision:
                priors = self.project.priors(state.priors)
                self._session = Session(revision, state, pictures, self.project.backbone, priors)
            return self._session

    async def embed(
        self, uploads: Sequence[Upload], *, thumbnails: bool = True
    ) -> tuple[list[tuple[str, Picture]], list[FailedImage]]:
        """Embed images and return those that can be used and those that cannot; refuse if none can."""
        names = [photo_name(upload.name, self.project.limits) for upload in uploads]
        coming = (self.embedder.embed(upload.file, with_thumbnail=thumbnails) for upload in uploads)
        found = await asyncio.gather(*coming, return_exceptions=True)
        usable: list[tuple[str, Picture]] = []
        failures: list[FailedImage] = []
        for name, result in zip(names, found, strict=True):
            if isinstance(result, ImageError):
                failures.append(FailedImage(name, result))
            elif isinstance(result, BaseException):
                raise result
            else:
                usable.append((name, result))
        if not usable:
            raise UnusableImagesError(failures)
        return usable, failures

    async def add(self, uploads: Sequence[Upload], label: str | None) -> tuple[int, list[Photo], list[FailedImage]]:
        """Add images to a class, or to the photos to be labelled."""
        if label is not None:
            self.project.state.class_of(label)
        usable, failures = await self.embed(uploads)
        photos = [Photo(new_id(), name, label) for name, _ in usable]
        pictures = {photo.id: picture for photo, (_, picture) in zip(photos, usable, strict=True)}
        title = f"Add {len(photos)} photo{'s' * (len(photos) != 1)}"
        revision = await asyncio.to_thread(
            self.project.change, title, lambda state: state.add_photos(photos, self.project.limits), pictures
        )
        return revision, photos, failures

    async def load_example_set(self) -> int:
        """Fill an empty project with the example set."""
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
            return state.add_photos(photos, limits)

        return await asyncio.to_thread(self.project.change, "Example set", fill, pictures)
