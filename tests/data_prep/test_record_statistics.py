import json

import numpy as np
import pytest
from conftest import GOLDEN

from albert_tf_data_prep.record_statistics import LONGEST_RUN, count_examples, describe, find_warnings, summarize

RECORDS = GOLDEN / "pretraining_records"
MASK = 4


def runs_by_hand(record, row):
    """Returns the lengths of the runs of neighbouring masked words of an example, by walking its words."""
    masked = set(record["masked_lm_positions"][row][record["masked_lm_weights"][row] > 0].tolist())
    words, lengths, run = [], [], 0
    for position in range(int(record["input_mask"][row].sum())):
        if record["token_boundary"][row, position]:
            words.append(False)
        words[-1] |= position in masked
    for word in [*words, False]:
        lengths += [run] if run and not word else []
        run = run + 1 if word else 0
    return lengths


def test_the_originals_records_are_counted_as_by_hand():
    records = np.load(RECORDS / "alice_seq64.npz")
    counts = count_examples(records, mask_id=MASK)
    assert counts["examples"] == json.loads((RECORDS / "alice_seq64.json").read_text())["n_records"]
    assert counts["label_1"] == records["next_sentence_labels"].sum()
    assert counts["masked_tokens"] == (records["masked_lm_weights"] > 0).sum()
    lengths = np.concatenate([runs_by_hand(records, row) for row in range(counts["examples"])])
    for length in range(1, LONGEST_RUN):
        assert counts[f"masked_runs_of_{length}"] == (lengths == length).sum()
    assert counts[f"masked_runs_of_{LONGEST_RUN}"] == (lengths >= LONGEST_RUN).sum()


def test_shares_follow_from_counts_that_add_up():
    records = dict(np.load(RECORDS / "alice_seq64.npz"))
    whole = count_examples(records, mask_id=MASK)
    halves = [count_examples({k: v[part] for k, v in records.items()}, mask_id=MASK)
              for part in (slice(0, 100), slice(100, None))]  # fmt: skip
    assert halves[0] + halves[1] == whole
    summary = summarize(whole)
    assert abs(summary["replacement_shares"]["mask"] - 0.8) < 0.02
    assert sum(summary["replacement_shares"].values()) == pytest.approx(1)
    assert sum(summary["masked_run_shares"].values()) == pytest.approx(1)
    assert summary["padding_share"] == pytest.approx(1 - records["input_mask"].mean(), abs=1e-6)
    assert "445 examples" in describe(summary)


SANE = {"documents": 100, "sentences": 5000, "examples": 10_000, "label_1_share": 0.5, "unknown_share": 0.01,
        "padding_share": 0.1, "documents_of_one_sentence": 3}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "read", "message"),
    [
        ({}, {}, None),
        ({"unknown_share": 0.06}, {}, "6.0% of the pieces are unknown"),
        ({"label_1_share": 0.56}, {}, "56.0% of the pairs have label 1"),
        ({"label_1_share": 0.56, "examples": 100}, {}, None),
        ({"documents_of_one_sentence": 51}, {}, "51% of the documents have one sentence"),
        ({"padding_share": 0.21}, {}, "21.0% of the positions are padding"),
        ({"documents": 2}, {"documents": 2, "files": 2}, "no document ends within a file"),
    ],
    ids=str,
)
def test_what_is_odd_is_said(changes, read, message):
    input_counts = {"documents": 100, "files": 2, **read}
    warnings = find_warnings({**SANE, **changes}, pair_task="sop", input_counts=input_counts)
    assert len(warnings) == (message is not None)
    assert all(message in warning for warning in warnings)
