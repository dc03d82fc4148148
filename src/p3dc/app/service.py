"""What the service does, apart from HTTP: photos in, labels out, and the project in between."""

import asyncio
import io
import threading
from collections.abc import Sequence
from typing import IO, NamedTuple

from p3dc.app.drawings import drawings
from p3dc.app.embedder import Embedder
from p3dc.app.http.limits import Limits, Refusal, conflict, invalid
from p3dc.app.project.project import Project
from p3dc.app.project.state import Class, Photo, State, new_id, photo_name
from p3dc.app.project.store import Picture
from p3dc.app.session import Task
from p3dc.images.decoding import ImageError, NotAnImageError, TooManyPixelsError


class Upload(NamedTuple):
    """An image that was sent: its name and its content."""

    name: str
    file: IO[bytes]


class Failed(NamedTuple):
    """An image that could not be used, and why."""

    name: str
    error: ImageError


class Service:
    """A project and a backbone.

    Parameters
    ----------
    project : Project
    limits : Limits
    """

    def __init__(self, project: Project, limits: Limits) -> None:
        self.project, self.limits = project, limits
        self.embedder = Embedder(project.backbone, limits.pixels)
        self._task: Task | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Stop the threads and let others open the project."""
        self.embedder.close()
        self.project.store.close()

    def task(self) -> Task:
        """Give what follows from the project as it is now."""
        with self._lock:
            revision, state, pictures = self.project.now()
            if self._task is None or self._task.revision != revision:
                self._task = Task(revision, state, pictures, self.project.backbone, self.project.priors(state.priors))
            return self._task

    async def embed(
        self, uploads: Sequence[Upload], *, small: bool = True
    ) -> tuple[list[tuple[str, Picture]], list[Failed]]:
        """Embed images, those that can be used and those that cannot; refuse where none can."""
        names = [photo_name(upload.name, self.limits) for upload in uploads]
        coming = (self.embedder.embed(upload.file, small=small) for upload in uploads)
        found = await asyncio.gather(*coming, return_exceptions=True)
        usable: list[tuple[str, Picture]] = []
        failures: list[Failed] = []
        for name, result in zip(names, found, strict=True):
            if isinstance(result, ImageError):
                failures.append(Failed(name, result))
            elif isinstance(result, BaseException):
                raise result
            else:
                usable.append((name, result))
        if not usable:
            raise _refuse(failures)
        return usable, failures

    async def add(self, uploads: Sequence[Upload], label: str | None) -> tuple[int, list[Photo], list[Failed]]:
        """Add images to a class, or to be labelled."""
        if label is not None:
            self.project.state.class_of(label)
        usable, failures = await self.embed(uploads)
        photos = [Photo(new_id(), name, label) for name, _ in usable]
        pictures = {photo.id: picture for photo, (_, picture) in zip(photos, usable, strict=True)}
        title = f"Add {len(photos)} photo{'s' * (len(photos) != 1)}"
        revision = await asyncio.to_thread(
            self.project.change, title, lambda state: state.add_photos(photos, self.limits), pictures
        )
        return revision, photos, failures

    async def draw(self) -> int:
        """Fill an empty project with the example set."""
        if self.project.state.classes or self.project.state.photos:
            raise conflict("The project is not empty. Delete its classes and photos first.")
        drawn = await asyncio.to_thread(drawings)
        usable, _ = await self.embed([Upload(drawing.name, io.BytesIO(drawing.jpeg)) for drawing in drawn])

        def fill(state: State) -> State:
            classes: dict[str, Class] = {}
            for drawing in drawn:
                if drawing.label is not None and drawing.label not in classes:
                    state, classes[drawing.label] = state.add_class(drawing.label, self.limits)
            labels = [None if drawing.label is None else classes[drawing.label].id for drawing in drawn]
            photos = [
                Photo(identity, drawing.name, label)
                for identity, drawing, label in zip(pictures, drawn, labels, strict=True)
            ]
            return state.add_photos(photos, self.limits)

        pictures = {new_id(): picture for _, picture in usable}
        return await asyncio.to_thread(self.project.change, "Example set", fill, pictures)


def _refuse(failures: list[Failed]) -> Refusal:
    """Refuse images of which none can be used."""
    told = [{"name": failed.name, "message": str(failed.error)} for failed in failures]
    first = failures[0]
    message = f"{first.name}: {first.error}"
    if all(isinstance(failed.error, NotAnImageError) for failed in failures):
        return Refusal(415, "not_an_image", message, failures=told)
    if all(isinstance(failed.error, TooManyPixelsError) for failed in failures):
        return Refusal(413, "too_many_pixels", message, failures=told)
    return invalid(message, failures=told)
