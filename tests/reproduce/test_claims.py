import pytest

from p3dc.reproduce.claims import Claim, claims
from p3dc.reproduce.experiments import Plan
from p3dc.reproduce.run import reproduce


def test_a_claim_is_decided_by_its_interval():
    assert str(Claim("A beats B", 0.02, 0.01)) == "A beats B: holds (+2.00 ± 1.00 points)."
    assert Claim("A beats B", -0.02, 0.01).verdict == "does not hold"
    assert Claim("A beats B", 0.005, 0.01).verdict == "not decided"


@pytest.fixture
def study(folder, tmp_path):
    plan = Plan(n_tasks=20, slow_tasks=5, select_tasks=10, methods=("l2n", "nn", "dc", "deepvoro"))
    return reproduce([folder], tmp_path / "out", plan)[0]


def test_claims_are_paired_over_common_tasks(study):
    found = {claim.text: claim for claim in claims(study)}
    dc, own = study.table_1["dc", 1].scores, study.table_1["p3dc", 1].scores
    assert len(dc.accuracy) == 5
    assert found["P3DC beats DC (2021), 1-shot"].gain == pytest.approx((own.accuracy[:5] - dc.accuracy).mean())


def test_claims_are_the_orderings_of_the_printed_numbers(study):
    texts = {claim.text for claim in claims(study)}
    assert "P3DC beats DeepVoro (2022), 1-shot" in texts  # 68.68 and 66.45
    assert "DeepVoro (2022) beats P3DC, 5-shot" in texts  # 84.55 and 84.37
    assert not any("TCPR" in text for text in texts)  # not measured
    assert "P3DC beats L2N + NN, 5-shot" not in texts  # not printed
    assert "P3DC beats L2N + NN, 7-way 1-shot" in texts
