import numpy as np
import pytest

from p3dc.reproduce.claims import Claim, Part, claims, count
from p3dc.reproduce.experiments import Plan
from p3dc.reproduce.run import reproduce

METHODS = ("l2n", "cl2n", "nn", "dc", "dc-nearest", "deepvoro", "simpleshot")


def claim(*gains, **options):
    return Claim("A beats B", "Table 1", tuple(Part("", gain, 0.01) for gain in gains), **options)


def test_a_part_is_decided_by_its_interval():
    assert [Part("", gain, 0.01).verdict for gain in (0.02, -0.02, 0.005)] == ["holds", "fails", "not decided"]
    assert Part("", -0.005, 0.001, margin=0.01).verdict == "holds"
    assert Part("", 0.0, 0.0).verdict == "not decided"
    assert Part("", 0.00004, 0.00001).verdict == "not decided"  # printed as +0.00 ± 0.00


def test_a_claim_needs_all_its_parts():
    assert claim(0.02, 0.03).verdict == "holds"
    assert claim(0.02, 0.005).verdict == "not decided"
    assert claim(0.02, 0.005, -0.02).verdict == "fails"
    assert claim(0.02, missing=("DC",)).verdict == claim().verdict == "not measured"


def test_most_is_more_than_half():
    assert claim(0.02, 0.02, -0.02, most=True).verdict == "holds"
    assert claim(0.02, -0.02, most=True).verdict == "fails"
    assert claim(0.02, 0.02, 0.005, -0.02, most=True).verdict == "not decided"


def test_claims_are_counted_once():
    assert count([claim(0.02, 0.03), claim(-0.02)]) == "1 of the paper's 2 claims hold, 1 fail"


@pytest.fixture(scope="module")
def study(imposter, tmp_path_factory):
    plan = Plan(n_tasks=20, slow_tasks=5, select_tasks=10, methods=METHODS)
    return reproduce([imposter], tmp_path_factory.mktemp("out"), plan, known_as=["miniimagenet"])[0]


@pytest.fixture(scope="module")
def found(study):
    return {claim.text: claim for claim in claims(study)}


def test_claims_are_paired_over_common_tasks(study, found):
    dc, own = study.table_1["dc", 1].scores, study.table_1["p3dc", 1].scores
    assert len(dc.accuracy) == 5
    [part] = found["P3DC is ahead of DC (2021), 1-shot"].parts
    assert part.gain == pytest.approx((own.accuracy[:5] - dc.accuracy).mean())
    assert part.printed == pytest.approx(0.0089)


def test_orderings_of_table_1_are_those_of_the_printed_numbers(found):
    assert "P3DC is ahead of DeepVoro (2022), 1-shot" in found  # 68.68 and 66.45
    assert "DeepVoro (2022) is ahead of P3DC, 5-shot" in found  # 84.55 and 84.37


def test_what_was_not_measured_is_listed_and_not_counted_as_held(found):
    tcpr = found["P3DC is ahead of TCPR (2022), 1-shot"]
    assert (tcpr.verdict, tcpr.missing) == ("not measured", ("TCPR (2022)",))
    assert found["With one shot the best results outperform most methods"].verdict == "not measured"


def test_orderings_over_ways_are_one_claim(study, found):
    ahead = found["P3DC is ahead of L2N and CL2N at every number of ways"]
    assert len(ahead.parts) == 2 * 6
    gain = study.table_3["p3dc", 20].scores.mean - study.table_3["cl2n", 20].scores.mean
    assert ahead.parts[-1].gain == pytest.approx(gain)


def test_claims_that_the_papers_own_numbers_contradict_are_listed(found):
    sample = found["Sample-level calibration alone is better than none"]
    assert [part.printed for part in sample.parts] == pytest.approx([0.0248, -0.0100])
    both = found["Both levels combined (α = β = 1/3) are ahead of either alone, 1-shot"]
    assert max(part.printed for part in both.parts) < 0


def test_claims_about_centres_are_decided_on_all_tasks(study, found):
    cosines = study.calibration.cosines
    gain = np.array(cosines["p3dc"]) - np.array(cosines["dc"])
    [part] = found["P3DC moves samples closer to the centre of their class than DC does"].parts
    assert len(gain) == 20
    assert part.gain == pytest.approx(gain.mean())
    assert part.interval == pytest.approx(1.96 * gain.std(ddof=1) / np.sqrt(20))
