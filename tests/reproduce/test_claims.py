import pytest

from p3dc.reproduce.claims import Claim, claims
from p3dc.reproduce.make import reproduce
from p3dc.reproduce.study import Plan


def test_a_claim_is_judged_by_its_interval():
    assert str(Claim("A beats B", 0.02, 0.01)) == "A beats B: holds (+2.00 ± 1.00 points)."
    assert Claim("A beats B", -0.02, 0.01).verdict == "does not hold"
    assert Claim("A beats B", 0.005, 0.01).verdict == "not decided"


def test_claims_are_paired_over_common_tasks(tmp_path, folder):
    [study] = reproduce(
        [folder], tmp_path / "out", Plan(n_tasks=20, slow_tasks=5, select_tasks=10, methods=("l2n", "nn", "dc"))
    )
    found = {claim.text: claim for claim in claims(study)}
    dc, own = study.table_1["dc", 1].scores, study.table_1["p3dc", 1].scores
    assert len(dc.accuracy) == 5
    assert found["P3DC beats DC, 1-shot"].gain == pytest.approx((own.accuracy[:5] - dc.accuracy).mean())
    assert "P3DC beats TCPR, 1-shot" not in found
