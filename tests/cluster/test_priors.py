"""Priors on a Ray cluster: those of one process, up to rounding."""

import os
import signal

import numpy as np
import pytest

from p3dc import FeatureSet, Priors
from p3dc.cluster.priors import average, average_unlabelled
from p3dc.errors import InputError
from p3dc.features import stream_features, stream_keyed


@pytest.fixture
def parts(tmp_path, base):
    """Twenty parts, none of which has all classes."""
    folder = tmp_path / "parts"
    folder.mkdir()
    order = np.random.default_rng(0).permutation(len(base))
    for number, rows in enumerate(np.array_split(order, 20)):
        names = [base.class_names[label] for label in base.labels[rows]]
        FeatureSet(base.features[rows], names).save(folder / f"part-{number:02}.parquet")
    return folder


def assert_close(one, two):
    assert one.class_names == two.class_names
    np.testing.assert_array_equal(one.counts, two.counts)
    np.testing.assert_allclose(one.prototypes, two.prototypes, rtol=1e-12)
    np.testing.assert_allclose(one.moments.lengths, two.moments.lengths, rtol=1e-12)
    np.testing.assert_allclose(one.moments.scatter, two.moments.scatter, rtol=1e-12)
    assert one.geometry.tightness == pytest.approx(two.geometry.tightness, rel=1e-9)


def here(folder):
    return Priors.from_batches((rows, labels) for rows, labels, _ in stream_features(folder))


@pytest.mark.ray
def test_priors_are_those_of_one_process(two_workers, parts):
    calls = []
    assert_close(average(parts, lambda *seen: calls.append(seen)), here(parts))
    assert len(calls) == 8
    assert calls == sorted(calls)
    assert calls[-1] == (20, 20)


@pytest.mark.ray
@pytest.mark.parametrize("with_ids", [False, True])
def test_clusters_are_those_of_one_process(two_workers, parts, with_ids):
    for path in sorted(parts.iterdir()) if with_ids else ():
        part = FeatureSet.load(path)
        ids = [f"{path.stem}/{row}.jpg" for row in range(len(part))]
        FeatureSet(part.features, part.labels, part.class_names, ids).save(path)
    found = average_unlabelled([parts])
    in_order = [batch for path in sorted(parts.iterdir()) for batch in stream_keyed(path)]
    expected = Priors.from_unlabelled(lambda: in_order)
    assert found.central == expected.central
    assert found.central[0][0].key.endswith(".jpg") == with_ids
    assert found.class_names == expected.class_names
    assert found.clusters.all()
    np.testing.assert_array_equal(found.counts, expected.counts)
    np.testing.assert_allclose(found.prototypes, expected.prototypes, rtol=1e-12)
    assert found.geometry.tightness == pytest.approx(expected.geometry.tightness, rel=1e-9)


@pytest.mark.ray
def test_mistakes_come_back(two_workers, parts):
    (parts / "part-07.parquet").write_bytes(b"no")
    with pytest.raises(InputError, match=r"part-07.parquet is damaged"):
        average(parts)


@pytest.mark.ray
def test_a_killed_worker_loses_no_part(two_workers, parts):
    """Its work is done again, whether it was summing, had summed or was joining."""
    import ray

    killed = []

    def kill(done, _):
        if not killed:
            killed.append(ray.get(ray.remote(lambda: os.getpid()).remote()))
            os.kill(killed[0], signal.SIGKILL)

    assert_close(average(parts, kill), here(parts))
    assert killed
