"""Delta debugging: what is tried, what is found, and what it costs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from harness.locate.search import Budget, smallest

LETTERS = "abcdefghijklmnop"
Enough = Callable[[frozenset[str]], bool]


def needing(*members: str) -> Enough:
    """Enough is what holds all of these."""
    return lambda few: few >= set(members)


def tries_of(enough: Enough) -> tuple[Enough, list[frozenset[str]]]:
    """A predicate that keeps what it was asked."""
    asked: list[frozenset[str]] = []

    def ask(few: frozenset[str]) -> bool:
        asked.append(few)
        return enough(few)

    return ask, asked


def test_the_highest_ranked_candidate_is_found_in_one_try() -> None:
    enough, asked = tries_of(needing("a"))
    found = smallest(LETTERS, enough, Budget(100))
    assert (found.members, found.minimal) == (("a",), True)
    assert asked == [{"a"}]


@pytest.mark.parametrize("members", ["a", "p", "h", "ap", "cdj", "abcdefghijklmnop"])
def test_just_what_is_needed_is_found_wherever_it_is_ranked(members: str) -> None:
    found = smallest(LETTERS, needing(*members), Budget(1000))
    assert found.members == tuple(members)
    assert found.minimal


def test_every_other_set_that_is_left_after_taking_one_member_away_was_seen_not_to_be_enough() -> None:
    enough, asked = tries_of(needing(*"bfk"))
    found = smallest(LETTERS, enough, Budget(1000))
    for member in found.members:
        assert frozenset(found.members) - {member} in asked


def test_either_of_two_is_enough_and_one_is_found() -> None:
    found = smallest("abcd", lambda few: bool(few & {"b", "d"}), Budget(100))
    assert found.members in (("b",), ("d",))


def test_two_that_only_help_together_are_found() -> None:
    """As when each of two branches alone still spoils what they are added into."""
    found = smallest(LETTERS, needing("a", "p"), Budget(1000))
    assert found.members == ("a", "p")


def test_a_spent_budget_gives_what_is_known_to_be_enough_and_says_that_it_may_be_too_much() -> None:
    for tries in range(8):
        enough, asked = tries_of(needing("c", "n"))
        found = smallest(LETTERS, enough, Budget(tries))
        assert needing("c", "n")(frozenset(found.members))
        assert len(asked) <= tries
        assert found.minimal == (found.members == ("c", "n")) or not found.minimal


def test_the_lowest_ranked_of_two_hundred_costs_twice_the_logarithm() -> None:
    ranked = [str(number) for number in range(200)]
    enough, asked = tries_of(needing("199"))
    assert smallest(ranked, enough, Budget(1000)).members == ("199",)
    assert len(asked) <= 17  # lengths 1 to 128, the halves between 128 and 200, and it alone


def test_a_member_that_is_not_needed_once_others_are_gone_is_left_out() -> None:
    """Enough are a and b together, or with them everything but c: sets need not grow monotonously better."""
    found = smallest("cab", lambda few: few == {"a", "b"} or few == {"a", "b", "c"}, Budget(100))
    assert set(found.members) == {"a", "b"}


def test_nothing_to_choose_from_needs_no_try() -> None:
    enough, asked = tries_of(needing("a"))
    assert smallest("a", enough, Budget(10)).members == ("a",)
    assert asked == []
