from __future__ import annotations

import numpy as np

from digideep.agent.sampling import minibatch_slices, normalized, shares, time_major


def test_minibatches_cover_every_row_once_and_only_the_last_is_smaller() -> None:
    assert minibatch_slices(10, 4) == [slice(0, 4), slice(4, 8), slice(8, 10)]
    assert minibatch_slices(8, 4) == [slice(0, 4), slice(4, 8)]
    assert minibatch_slices(3, 256) == [slice(0, 3)]


def test_time_major_rows_of_a_slab_view_are_not_copied() -> None:
    slab = np.arange(12.0).reshape(3, 2, 2)

    rows = time_major(slab.swapaxes(0, 1))

    np.testing.assert_array_equal(rows, slab.reshape(6, 2))
    assert np.shares_memory(rows, slab)


def test_shares_sum_to_one_and_unreal_rows_have_none() -> None:
    np.testing.assert_array_equal(shares(np.array([1.0, 0.0, 1.0, 1.0, 1.0])), [0.25, 0.0, 0.25, 0.25, 0.25])
    np.testing.assert_array_equal(shares(np.zeros(3)), [0.0, 0.0, 0.0])


def test_normalized_values_have_mean_zero_and_variance_one_over_real_rows() -> None:
    share = shares(np.array([1.0, 1.0, 1.0, 0.0]))

    result = normalized(np.array([1.0, 2.0, 3.0, 1000.0]), share)

    np.testing.assert_allclose(result, [-np.sqrt(1.5), 0.0, np.sqrt(1.5), 0.0], rtol=1e-7)


def test_equal_values_a_single_one_and_none_become_zero() -> None:
    np.testing.assert_array_equal(normalized(np.full(4, 3.0), shares(np.ones(4))), np.zeros(4))
    np.testing.assert_array_equal(normalized(np.array([5.0, 9.0]), shares(np.array([0.0, 1.0]))), np.zeros(2))
    np.testing.assert_array_equal(normalized(np.array([5.0, 9.0]), shares(np.zeros(2))), np.zeros(2))
