"""Host lists: expand and compress."""

from __future__ import annotations

from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srunbook.slurm import SlurmParseError, compress_hostlist, expand_hostlist

WORDS = st.text("abz-._", max_size=4)
DIGITS = st.text("0123456789", max_size=9)
NAMES = st.builds(lambda *parts: "".join(parts), WORDS, DIGITS, WORDS, DIGITS).filter(bool)
NEIGHBOURS = st.builds(
    lambda prefix, first, count, width: [f"{prefix}{first + i:0{width}}" for i in range(count)],
    WORDS.filter(bool),
    st.integers(0, 120),
    st.integers(1, 12),
    st.integers(1, 4),
)
CLUSTERS = st.lists(NEIGHBOURS, max_size=4).map(lambda groups: list(chain(*groups)))


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", []),
        ("login", ["login"]),
        ("n1,n2", ["n1", "n2"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[1,3-4,007]", ["n1", "n3", "n4", "n007"]),
        ("n[1-2]-ib", ["n1-ib", "n2-ib"]),
        ("rack[0-1]n[1-2]", ["rack0n1", "rack0n2", "rack1n1", "rack1n2"]),
        ("rack[0-1]n[01-04]-ib,x", [f"rack{r}n0{n}-ib" for r in (0, 1) for n in (1, 2, 3, 4)] + ["x"]),
        ("a[0-1]b[2]c[3-4]d", ["a0b2c3d", "a0b2c4d", "a1b2c3d", "a1b2c4d"]),
        ("[1-2]", ["1", "2"]),
        ("127.0.0.[1-2]", ["127.0.0.1", "127.0.0.2"]),
        ("n[3,1]", ["n3", "n1"]),
        ("n[99998-100000]", ["n99998", "n99999", "n100000"]),
    ],
)
def test_expand(text, hosts):
    """A host list names its hosts in its order, the leftmost bracket varying slowest."""
    expanded = expand_hostlist(text)

    assert expanded == hosts


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ([], ""),
        (["n1"], "n1"),
        (["n1", "n2", "n3", "n5"], "n[1-3,5]"),
        (["n09", "n10"], "n[09-10]"),
        (["n9", "n10"], "n[9-10]"),
        (["n99", "n100"], "n[99-100]"),
        (["n1", "n02"], "n[1,02]"),
        (["n3", "n1"], "n[3,1]"),
        (["n1", "n1"], "n[1,1]"),
        (["n1", "x", "n2"], "n1,x,n2"),
        (["n1-ib", "n2-ib"], "n1-ib,n2-ib"),
        (["rack0n1", "rack0n2", "rack1n1"], "rack0n[1-2],rack1n1"),
        (["127.0.0.1", "127.0.0.2"], "127.0.0.[1-2]"),
        (["x99999999", "x100000000"], "x99999999,x100000000"),
    ],
)
def test_compress(hosts, text):
    """Neighbours that differ in their last number share a bracket, and the order is kept."""
    compressed = compress_hostlist(hosts)

    assert compressed == text


@given(st.lists(NAMES, max_size=8))
def test_expand_undoes_compress(names):
    """Expanding the compressed form of any names gives these names."""
    assert expand_hostlist(compress_hostlist(names)) == names


@given(CLUSTERS)
def test_expand_undoes_compress_for_ranges(names):
    """Expanding the compressed form of runs of numbered names gives these names."""
    compressed = compress_hostlist(names)

    assert expand_hostlist(compressed) == names


@given(CLUSTERS)
def test_compress_undoes_expand(names):
    """A compressed form stays as it is when it is expanded and compressed again."""
    text = compress_hostlist(names)

    assert compress_hostlist(expand_hostlist(text)) == text


@given(st.text("n01-9[],. x", max_size=12))
def test_any_text_is_read_or_refused(text):
    """Any text is either read or refused with its position; nothing else is raised."""
    try:
        hosts, position = expand_hostlist(text), 0
    except SlurmParseError as error:
        hosts, position = [], error.position

    assert 0 <= position <= len(text)
    assert all(host and not set("[], ") & set(host) for host in hosts)


@pytest.mark.parametrize(
    ("text", "position", "problem"),
    [
        ("n[1-2", 1, "a '[' that nothing closes"),
        ("n1-2]", 4, "a ']' that nothing opened"),
        ("n[1-[2-3]]", 4, "a bracket inside a bracket"),
        ("n[]", 2, "'' is no number"),
        ("n[1,,2]", 4, "'' is no number"),
        ("n[1-2,a]", 6, "'a' is no number"),
        ("n[1-]", 2, "'1-' is no number"),
        ("n[1-2-3]", 2, "'1-2-3' is no number"),
        ("n[4-2]", 2, "runs backwards"),
        ("a,,b", 2, "an empty name"),
        ("a,", 2, "an empty name"),
        ("a b", 1, "a space"),
        ("n[0-999999999]", 2, "more than 100000 hosts"),
        ("n[1-9" + "9" * 5000 + "]", 2, "more than 100000 hosts"),
        ("n[0-999][0-999]", 0, "more than 100000 hosts"),
        ("n[0-99999],x", 11, "more than 100000 hosts"),
        ("n[\u0661]", 2, "is no number"),
    ],
)
def test_malformed(text, position, problem):
    """A malformed host list is refused with the text, the position, the problem and an example."""
    with pytest.raises(SlurmParseError) as caught:
        expand_hostlist(text)

    assert caught.value.position == position
    assert problem in str(caught.value)
    assert f"at character {position + 1}" in str(caught.value)
    assert repr(text[:70])[1:-1] in str(caught.value)
    assert "rack[0-1]n[01-04]-ib,login" in str(caught.value)


@pytest.mark.parametrize("name", ["", "a,b", "a[1]", "a b", "a]"])
def test_compress_refuses_what_is_no_name(name):
    """A name with a bracket, a comma or a space is refused, and so is an empty one."""
    with pytest.raises(SlurmParseError, match="host name"):
        compress_hostlist(["n1", name])


def jax_first_host(text, monkeypatch):
    """Return the host that JAX 0.10 takes for the coordinator."""
    cluster = pytest.importorskip("jax._src.clusters.slurm_cluster").SlurmCluster
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_STEP_NODELIST", text)
    return cluster.get_coordinator_address(timeout_secs=None, override_coordinator_port="1234").removesuffix(":1234")


@pytest.mark.parametrize(
    ("text", "first", "jax_says"),
    [("rack[0-1]n[1-4]", "rack0n1", "rack0"), ("n[1-2]-ib", "n1-ib", "n1")],
)
def test_what_jax_gets_wrong(text, first, jax_says, monkeypatch):
    """JAX takes a host that does not exist for the coordinator where a name has two brackets or a suffix."""
    assert jax_first_host(text, monkeypatch) == jax_says
    assert expand_hostlist(text)[0] == first


@given(CLUSTERS.filter(bool))
def test_jax_agrees_with_what_we_write(names):
    """JAX finds the first host in every host list that compress_hostlist writes."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        found = jax_first_host(compress_hostlist(names), monkeypatch)

    assert found == names[0]
