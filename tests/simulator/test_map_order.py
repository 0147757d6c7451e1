import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groupcoord_spark.assignors.java_maps import spread_hash
from groupcoord_spark.simulator.groups.map_order import BrokerMap, in_vote_order
from tests.examples import examples

NAMES = ["range", "roundrobin", "sticky", "cooperative-sticky"]


@pytest.mark.parametrize(
    ("like_java", "order"),
    [(True, ["sticky", "range", "roundrobin", "cooperative-sticky"]), (False, ["cooperative-sticky", "roundrobin", "range", "sticky"])],
)
def test_the_four_common_protocols_stand_in_the_order_of_each_map(like_java, order):
    for names in (NAMES, NAMES[::-1]):
        assert in_vote_order(names, like_java) == order


def test_names_that_share_a_node_of_the_trie_come_after_those_alone():
    names = [f"p{number}" for number in range(200)]
    ordered = in_vote_order(names, like_java=False)
    assert sorted(ordered) == sorted(names)
    assert ordered == in_vote_order(names[::-1], like_java=False)


class TableModel:
    """A chained hash table built slot by slot, as the JVM's two are: nodes go to the end of a chain (Java) or by their hash (Scala)."""

    def __init__(self, like_java: bool) -> None:
        self.like_java = like_java
        self.table: list[list[str]] = [[] for _ in range(16)]
        self.count = 0

    def _place(self, key: str) -> None:
        chain = self.table[spread_hash(key) & (len(self.table) - 1)]
        if self.like_java:
            chain.append(key)
            return
        signed = (spread_hash(key) ^ (1 << 31)) - (1 << 31)
        index = 0
        while index < len(chain) and (spread_hash(chain[index]) ^ (1 << 31)) - (1 << 31) <= signed:
            index += 1
        chain.insert(index, key)

    def _double(self) -> None:
        old = [key for chain in self.table for key in chain]
        self.table = [[] for _ in range(2 * len(self.table))]
        for key in old:
            self._place(key)

    def put(self, key: str) -> None:
        if not self.like_java and self.count + 1 >= len(self.table) * 0.75:
            self._double()
        if any(key in chain for chain in self.table):
            return
        self._place(key)
        self.count += 1
        if self.like_java and self.count > len(self.table) * 0.75:
            self._double()

    def remove(self, key: str) -> None:
        for chain in self.table:
            if key in chain:
                chain.remove(key)
                self.count -= 1

    def keys(self) -> list[str]:
        return [key for chain in self.table for key in chain]


IDS = [f"m-{uuid.UUID(int=number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128)}" for number in range(120)]


@examples(60)
@given(st.booleans(), st.lists(st.tuples(st.integers(0, 3), st.integers(0, 119)), max_size=200))
def test_walking_a_map_gives_the_order_of_a_real_table(like_java, steps):
    model, actual = TableModel(like_java), BrokerMap(like_java)
    for kind, number in steps:
        if kind:
            model.put(IDS[number])
            actual.put(IDS[number], number)
        else:
            model.remove(IDS[number])
            actual.pop(IDS[number])
    assert actual.keys() == model.keys()
    assert list(actual) == [IDS.index(key) for key in model.keys()]  # noqa: SIM118


def test_a_map_does_not_shrink():
    members = BrokerMap(like_java=True)
    for number, key in enumerate(IDS):
        members.put(key, number)
    for key in IDS[2:]:
        members.pop(key)
    grown = members.keys()
    assert sorted(grown, key=lambda key: spread_hash(key) & 255) == grown
