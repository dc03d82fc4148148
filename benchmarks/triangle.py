"""Measure how fast the page follows the point of the triangle.

``python -m benchmarks.triangle`` makes projects of features like a network's and times, on one thread, the first view
of labels, map and leave-one-out, and that of each further point.
"""

import statistics
import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.made import make_features
from p3dc.app.http.responses import view
from p3dc.app.project.state import Photo, ProjectLimits, State, new_id
from p3dc.app.project.store import Picture
from p3dc.app.session import Session
from p3dc.app.taught import taught_photos
from p3dc.images.backbone_priors import backbone_priors
from p3dc.images.backbones.loading import load_backbone


def milliseconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return 1000 * (time.perf_counter() - start)


def make_state(n_way: int, n_shot: int, n_query: int) -> tuple[State, dict[str, Picture]]:
    """Make classes of examples, and photos of each class to be labelled."""
    made = make_features(0, n_way, n_shot + n_query, 1280)
    state, photos, pictures = State(reject=0.2), [], {}
    for label in range(n_way):
        state, added = state.add_class(f"class {label}", ProjectLimits())
        for number, features in enumerate(made.features[made.labels == label]):
            photos.append(Photo(new_id(), "photo", added.id if number < n_shot else None))
            pictures[photos[-1].id] = Picture(features.astype(np.float32), b"")
    return state.add_photos(photos, ProjectLimits()), pictures


def main() -> None:
    backbone = load_backbone()
    priors = backbone_priors(backbone)
    print("classes  photos of each  first view  first leave-one-out  view at a point  leave-one-out at a point (ms)")
    for n_way, n_shot in ((2, 5), (5, 5), (10, 20)):
        state, pictures = make_state(n_way, n_shot, 5)
        session = Session(0, state, pictures, taught_photos(state, pictures, backbone, priors))
        firsts = milliseconds(lambda: view(session, None)), milliseconds(lambda: session.leave_one_out(None))  # noqa: B023
        points = [(alpha, 0.4) for alpha in np.linspace(0, 0.5, 11).tolist()]
        views = statistics.median(milliseconds(lambda: view(session, point)) for point in points)  # noqa: B023
        left_out = statistics.median(milliseconds(lambda: session.leave_one_out(point)) for point in points)  # noqa: B023
        print(f"{n_way:7} {n_shot:15} {firsts[0]:11.0f} {firsts[1]:20.0f} {views:16.1f} {left_out:25.1f}")


if __name__ == "__main__":
    with threadpool_limits(1, user_api="blas"):
        main()
