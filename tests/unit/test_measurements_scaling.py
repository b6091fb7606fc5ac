"""What is said about scaling follows from the raw samples, and only as far as they go."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srunbook import measurements
from srunbook.measurements import Configuration, Measurement

times = st.floats(min_value=1e-3, max_value=1e3)
series = st.lists(times, min_size=1, max_size=30)


def measurement(samples: dict[int, list[float]], machine: dict | None = None, **parameters: object) -> Measurement:
    """Return a measurement with one configuration for each number of nodes."""
    configurations = [
        Configuration(f"{nodes} nodes", {"nodes": nodes, "link": "300mbit"}, {"step_s": values})
        for nodes, values in samples.items()
    ]
    stamp = {"commit": "abc", "date": "2026-11-20", "versions": {"torch": "2.13.0"}}
    return Measurement(
        "python bench/x.py", machine=machine or {}, configurations=configurations, parameters=parameters, **stamp
    )


# Intervals


@pytest.mark.parametrize(
    ("count", "ranks"),
    [(1, (1, 1)), (5, (1, 5)), (6, (1, 6)), (9, (2, 8)), (10, (2, 9)), (20, (6, 15)), (50, (18, 33)), (100, (40, 61))],
)
def test_interval_ranks(count, ranks):
    """The ends of a 95% interval are the samples that the binomial distribution gives."""
    interval = measurements.median_interval([float(number) for number in range(1, count + 1)])

    assert (interval.low, interval.high) == ranks
    assert (interval.confidence >= 0.95) == (count >= 6)


@pytest.mark.parametrize(("count", "enough", "robust"), [(6, False, False), (7, True, False), (10, True, True)])
def test_how_many_repeats_a_ratio_needs(count, enough, robust):
    """A ratio reaches 95% from seven samples of each on, and from ten on without the odd one at each end."""
    ordinary = [1.0] * (count - 2)
    ratio = measurements.ratio_interval([*ordinary, 0.1, 9.0], [*ordinary, 0.1, 9.0])

    assert (ratio.confidence >= 0.95) == enough
    assert (ratio.high == 1.0) == robust


def test_interval_covers():
    """Of many intervals from skewed samples, at least as many hold the true median as they promise."""
    draw = random.Random(0)
    hits = 0
    for _ in range(2000):
        interval = measurements.median_interval([draw.expovariate(1.0) for _ in range(10)])
        hits += interval.low <= 0.6931 <= interval.high

    assert 0.965 < hits / 2000 < 0.99  # 97.9% by theory


def test_ratio_covers():
    """Of many ratios of skewed samples, at least as many hold the true ratio as they promise."""
    draw = random.Random(1)

    def sample(scale: float) -> list[float]:
        return [scale * (1.0 + draw.expovariate(5.0)) for _ in range(10)]

    ratios = [measurements.ratio_interval(sample(2.0), sample(1.0)) for _ in range(2000)]

    assert all(ratio.confidence >= 0.95 for ratio in ratios)
    assert sum(ratio.low <= 2.0 <= ratio.high for ratio in ratios) / 2000 >= 0.95


@given(series)
def test_median_lies_within(samples):
    """The median lies between the ends, which are samples; the order of the samples does not matter."""
    interval = measurements.median_interval(samples)

    assert interval.low <= interval.value <= interval.high
    assert {interval.low, interval.high} <= set(samples)
    assert measurements.median_interval(samples[::-1]) == interval


@given(series, st.floats(0.5, 0.9), st.floats(0.9, 0.999))
def test_more_confidence_is_wider(samples, less, more):
    """An interval of more confidence holds the one of less."""
    narrow, wide = measurements.median_interval(samples, less), measurements.median_interval(samples, more)

    assert wide.low <= narrow.low
    assert narrow.high <= wide.high


@given(series, series)
def test_ratio_turned_around(over, under):
    """The ratio turned around has the inverse value and the inverse ends."""
    ratio, inverse = measurements.ratio_interval(over, under), measurements.ratio_interval(under, over)

    assert (inverse.value, inverse.low, inverse.high) == pytest.approx((1 / ratio.value, 1 / ratio.high, 1 / ratio.low))
    assert ratio.low <= ratio.value <= ratio.high


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: measurements.median_interval([]), r"\[\] has no median"),
        (lambda: measurements.median_interval([float("nan")]), "has no median"),
        (lambda: measurements.median_interval([1.0], 1.0), "confidence is 1.0; it lies between 0 and 1"),
        (lambda: measurements.ratio_interval([1.0], [0.0]), "0.0 is no time"),
        (lambda: measurements.ratio_interval([-1.0], [1.0]), "-1.0 is no time"),
    ],
)
def test_no_samples(call, complaint):
    """What has no median or no ratio is refused."""
    with pytest.raises(ValueError, match=complaint):
        call()


# Tables


@given(series, series, st.floats(1e-3, 1e3))
def test_a_unit_changes_no_ratio(one, two, factor):
    """Speed-up and efficiency are the same in seconds as in any other unit of time."""
    for table in (measurements.strong, measurements.weak):
        plain = table(measurement({1: one, 2: two}))
        scaled = table(measurement({1: [factor * t for t in one], 2: [factor * t for t in two]}))
        for a, b in zip(plain.rows, scaled.rows, strict=True):
            for ratio in ("speedup", "efficiency"):
                x, y = getattr(a, ratio), getattr(b, ratio)

                assert (y.value, y.low, y.high) == pytest.approx((x.value, x.low, x.high))


@given(st.dictionaries(st.integers(1, 64), series, min_size=1, max_size=5))
def test_the_base_case_is_one(samples):
    """The smallest size is the base case: its speed-up and efficiency are exactly 1, whatever else there is."""
    for table in (measurements.strong(measurement(samples)), measurements.weak(measurement(samples))):
        base = table.base

        assert base.count == min(samples)
        assert base.speedup == base.efficiency == measurements.Interval(1.0, 1.0, 1.0, 1.0)
        assert [row.count for row in table.rows] == sorted(samples)


@given(series, series, st.integers(2, 16))
def test_speedup_is_efficiency_times_size(one, many, nodes):
    """In both tables the speed-up is the efficiency times how much more there is to work with."""
    for table in (measurements.strong, measurements.weak):
        row = table(measurement({2: one, 2 * nodes: many})).rows[1]

        assert row.speedup.value == pytest.approx(nodes * row.efficiency.value)
        assert row.speedup.low == pytest.approx(nodes * row.efficiency.low)


def test_ideal_scaling():
    """Half the time on twice the nodes is a strong efficiency of 1, the same time a weak one."""
    strong = measurements.strong(measurement({2: [4.0] * 10, 4: [2.0] * 10, 8: [2.0] * 10}))
    weak = measurements.weak(measurement({1: [4.0] * 10, 4: [4.0] * 10, 8: [5.0] * 10}))

    assert [(row.speedup.value, row.efficiency.value) for row in strong.rows] == [(1, 1), (2, 1), (2, 0.5)]
    assert [(row.speedup.value, row.efficiency.value) for row in weak.rows] == [(1, 1), (4, 1), (6.4, 0.8)]


def test_the_same_samples_give_the_same_text():
    """No random number is drawn: a table is the same each time."""
    samples = {1: [1.0 + 0.01 * number for number in range(12)], 2: [0.6 + 0.01 * number for number in range(12)]}

    assert measurements.strong(measurement(samples)).text() == measurements.strong(measurement(samples)).text()


def test_the_text_states_what_it_must():
    """The text names kind, base case with its absolute time, repeats, intervals, limits, machine and source."""
    samples = {2: [4.0] * 12, 4: [2.5] * 10}
    text = measurements.strong(measurement(samples, {"cores": 2, "cpu_quota": 0.5}, batch_size=64)).text()

    assert text.splitlines()[0].split() == ["nodes", "repeats", "step_s", "speed-up", "efficiency"]
    assert text.splitlines()[2].split()[:3] == ["4", "10", "2.5"]
    for sentence in (
        "Strong scaling: the same work for any number of nodes.",
        "Base case: 2 nodes, median 4 s of 12 repeats.",
        "10 to 12 repeats. Medians, with intervals of at least 95% in brackets",
        "Nothing was measured below 2 nodes or beyond 4, and nothing is said of it.",
        "Measured with: cores 2, cpu_quota 0.5, batch_size 64.",
        "Source: python bench/x.py at abc, 2026-11-20.",
    ):
        assert sentence in text
    for warning in ("Fewer than", "Too few", "Not valid", "More than"):
        assert warning not in text


def test_few_repeats_are_confessed():
    """Fewer than ten repeats are named, and so is the confidence that they reach."""
    text = measurements.strong(measurement({1: [4.0] * 10, 2: [2.5] * 5})).text()

    assert "Fewer than 10 repeats for nodes 2: read these rows as a hint." in text
    assert "Too few for 95%: the least certain interval holds with 92% only." in text


def test_shared_cores_are_confessed():
    """More processes than cores, and no quota, is said not to be valid."""
    table = measurements.strong(measurement({1: [4.0] * 10, 4: [2.5] * 10}, {"cores": 2}))

    assert "Not valid beyond 2 nodes: all share the 2 cores of one machine" in table.text()


def test_better_than_ideal_is_doubted():
    """An efficiency that is above 100% with all of its interval points at the base case."""
    samples = {1: [4.0] * 10, 2: [1.5] * 10, 4: [0.99] * 9 + [1.5]}
    text = measurements.strong(measurement(samples)).text()

    assert "More than 100% for nodes 2, 4: look for what is wrong with the base case." in text
    assert "Base case: 1 node, " in text


def test_where_chooses():
    """Of configurations with several links, `where` takes those of one."""
    fast, slow = measurement({1: [4.0], 2: [2.0]}), measurement({1: [4.0], 2: [3.0]})
    renamed = [Configuration(c.name, {**c.parameters, "link": "100mbit"}, c.samples) for c in slow.configurations]
    both = Measurement(**{**vars(fast), "configurations": [*fast.configurations, *renamed]})
    table = measurements.strong(both, where={"link": "100mbit"})

    assert table.rows[1].time.value == 3.0
    assert "link 100mbit" in table.text()
    with pytest.raises(measurements.ScalingError, match="two configurations have 'nodes' 1: choose with where"):
        measurements.strong(both)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"over": "gpus"}, "has 'gpus' None; it is a number"),
        ({"over": "link"}, "has 'link' '300mbit'; it is a number"),
        ({"quantity": "epoch_s"}, "configuration '1 nodes' has no 'epoch_s'; it has step_s"),
        ({"where": {"link": "1gbit"}}, "no configuration has {'link': '1gbit'}; there are {'nodes': 1"),
    ],
)
def test_what_is_not_there_is_named(options, complaint):
    """A parameter, a quantity or a choice that the measurement lacks is named beside what it has."""
    with pytest.raises(measurements.ScalingError, match=complaint):
        measurements.strong(measurement({1: [4.0], 2: [2.0]}), **options)


def test_a_time_of_zero_is_refused():
    """A sample of zero seconds is no time."""
    with pytest.raises(measurements.ScalingError, match=r"has a 'step_s' of 0.0 s"):
        measurements.strong(measurement({1: [4.0, 0.0]}))


def test_plot(tmp_path):
    """The picture is written whole, the same each time, and an unknown ending leaves nothing behind."""
    pytest.importorskip("matplotlib")
    table = measurements.weak(measurement({1: [4.0, 4.1], 2: [4.4, 4.5], 4: [5.0, 5.2]}))
    for name in ("a.svg", "b.svg", "a.png"):
        measurements.plot(table, tmp_path / name)

    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="xyz"):
        measurements.plot(table, tmp_path / "c.xyz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png", "a.svg", "b.svg"]


# What the network allows


def simulated(ready: list[float], all_reduce: list[float], tick: float = 0.25) -> float:
    """Play out one link that works in ticks and takes buckets in order; return when the last all-reduce ends."""
    now, queue = 0.0, [[begin, takes] for begin, takes in zip(ready, all_reduce, strict=True)]
    while queue:
        now += tick
        if queue[0][0] < now:
            queue[0][1] -= tick
        if queue[0][1] <= 0:
            queue.pop(0)
    return now


quarters = st.integers(0, 20).map(lambda number: number / 4)


@given(st.lists(st.tuples(quarters, quarters), max_size=8))
def test_buckets_follow_one_another(buckets):
    """The recurrence ends when a link that is played out tick by tick ends."""
    ready = sorted(begin for begin, _ in buckets)
    takes = [time for _, time in buckets]
    ends = measurements.bucket_ends(ready, takes)

    assert ends == sorted(ends)
    if buckets and all(takes):
        assert ends[-1] == simulated(ready, takes)


@given(st.floats(0, 10), st.lists(st.tuples(quarters, quarters), max_size=8))
def test_a_step_lies_between_its_bounds(alone, buckets):
    """A step takes at least its computing and its sending, and at most both one after the other."""
    ready = sorted(min(begin, alone) for begin, _ in buckets)
    takes = [time for _, time in buckets]
    step = measurements.predict_step(alone, ready, takes)

    assert max(alone, sum(takes)) <= step + 1e-9
    assert step <= alone + sum(takes) + 1e-9


def test_no_communication_costs_nothing():
    """Without a bucket a step takes what it takes alone."""
    assert measurements.predict_step(0.7, [], []) == 0.7


@given(st.floats(0, 1e12), st.integers(1, 1000))
def test_bytes_of_a_ring(size, ranks):
    """One rank sends nothing, two send the size, and none ever sends twice the size."""
    assert measurements.ring_bytes(size, 1) == 0
    assert measurements.ring_bytes(size, 2) == size
    assert measurements.ring_bytes(size, ranks) <= 2 * size


def test_link_bound_of_a_known_case():
    """One megabyte between two ranks over 100 Mbit/s takes 80 ms at least."""
    assert measurements.link_bound(1e6, 2, 100e6) == pytest.approx(0.08)
    assert measurements.link_bound(1e6, 4, 100e6) == pytest.approx(0.12)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: measurements.ring_bytes(1.0, 0), "1.0 bytes on 0 ranks"),
        (lambda: measurements.ring_bytes(-1.0, 2), "-1.0 bytes"),
        (lambda: measurements.link_bound(1.0, 2, 0.0), "a link of 0.0 bit/s"),
        (lambda: measurements.link_bound(1.0, 2, float("nan")), "a link of nan bit/s"),
        (lambda: measurements.bucket_ends([1.0], []), "1 times when buckets are ready, and 0 all-reduces"),
        (lambda: measurements.bucket_ends([-1.0], [1.0]), "-1.0 s is negative"),
        (lambda: measurements.predict_step(-1.0, [], []), "a step of -1.0 s"),
    ],
)
def test_what_no_network_has_is_refused(call, complaint):
    """Negative times, no rank, and a link without a rate are refused."""
    with pytest.raises(ValueError, match=complaint):
        call()
