"""Who runs which shard: after a loss somebody else, never a failed test again, and the first of two attempts counts."""

from __future__ import annotations

from cuassay.fleet.book import MOST_LOSSES, Attempt, Book, Shard

ALL = frozenset({"one", "two", "three"})


def begin(book: Book, worker: str, now: float = 0.0, alive: frozenset[str] = ALL) -> Attempt:
    attempt = book.next(worker, ["cpu"], now, alive)
    assert attempt is not None
    return attempt


def lose(book: Book, attempt: Attempt, under_way: str) -> None:
    book.saw(attempt, begun=under_way)
    book.lost(attempt)


def test_a_worker_gets_only_shards_of_its_kinds() -> None:
    book = Book([Shard(("a",), 1.0, "cuda"), Shard(("b",), 1.0, "cpu")])

    assert begin(book, "one").shard.tests == ("b",)
    assert book.next("two", ["cpu"], 0.0) is None


def test_a_lost_shard_runs_again_elsewhere() -> None:
    book = Book([Shard(("a",), 1.0)])
    book.lost(begin(book, "one"))

    assert book.next("one", ["cpu"], 1.0, ALL) is None
    assert begin(book, "two").shard.tests == ("a",)


def test_a_worker_without_others_repeats_what_it_lost() -> None:
    book = Book([Shard(("a",), 1.0)])
    book.lost(begin(book, "one"))

    assert begin(book, "one", alive=frozenset({"one"})).shard.tests == ("a",)


def test_a_lost_shard_is_divided_and_no_test_is_missing() -> None:
    book = Book([Shard(tuple("abcdefg"), 7.0)])
    book.lost(begin(book, "one"))
    pieces = [begin(book, "two").shard for _ in range(book.waiting_number)]

    assert [test for piece in pieces for test in piece.tests] == list("abcdefg")
    assert sum(piece.seconds for piece in pieces) == 7.0


def test_each_piece_of_a_lost_shard_has_its_own_avoided_workers() -> None:
    book = Book([Shard(tuple("abcdefg"), 7.0)])
    book.lost(begin(book, "one"))
    refused = begin(book, "two")
    book.refused(refused)

    others = [begin(book, "two").shard.tests for _ in range(book.waiting_number - 1)]

    assert refused.shard.tests not in others
    assert begin(book, "three").shard.tests == refused.shard.tests


def test_a_test_under_way_at_two_losses_is_given_up_and_the_others_go_on() -> None:
    book = Book([Shard(("a", "b"), 20.0)])
    lose(book, begin(book, "one"), under_way="b")
    first, second = begin(book, "two"), begin(book, "two")
    lose(book, second, under_way="b")

    assert book.given_up == {"b": "2 workers were lost while it ran"}
    assert (book.running, book.waiting_number) == ((first,), 0)


def test_losses_of_different_tests_give_up_none() -> None:
    book = Book([Shard(("a", "b"), 20.0)])
    lose(book, begin(book, "one"), under_way="a")
    begin(book, "two")
    lose(book, begin(book, "two"), under_way="b")

    assert not book.given_up
    assert book.waiting_number == 1


def test_a_shard_that_ends_all_its_workers_is_given_up() -> None:
    book = Book([Shard(("a", "b"), 1.0)])
    while not book.is_done:
        book.lost(begin(book, "one", alive=frozenset()))

    assert book.given_up == dict.fromkeys("ab", "2 workers were lost while it ran")


def test_a_shard_that_is_lost_again_and_again_is_given_up() -> None:
    book = Book([Shard(tuple(map(str, range(10**5))), 1.0)])
    losses = 0
    while not book.is_done:
        book.lost(begin(book, "one", alive=frozenset()))
        losses += 1

    assert set(book.given_up.values()) == {f"{MOST_LOSSES} workers were lost with its shard"}
    assert losses == 3 + 4 + 4**2 + 4**3


def test_a_shard_of_many_losses_is_not_given_up_while_another_attempt_runs() -> None:
    book = Book([Shard(("a", "b"), 20.0, losses=MOST_LOSSES - 1)])
    first = begin(book, "one")
    second = book.next("two", ["cpu"], 200.0, ALL)
    assert second is not None
    book.lost(first)

    assert (book.given_up, second.shard.tests) == ({}, ("a", "b"))

    book.lost(second)

    assert book.given_up == dict.fromkeys("ab", f"{MOST_LOSSES + 1} workers were lost with its shard")
    assert book.is_done


def test_a_short_shard_stays_whole_after_a_loss() -> None:
    book = Book([Shard(("a", "b"), 0.5)])
    book.lost(begin(book, "one"))

    assert begin(book, "two").shard.tests == ("a", "b")


def test_a_refused_shard_waits_whole_and_counts_no_loss() -> None:
    book = Book([Shard(("a", "b"), 1.0)])
    book.refused(begin(book, "one"))
    again = begin(book, "two").shard

    assert (again.tests, again.losses) == (("a", "b"), 0)


def test_a_test_that_the_machine_failed_runs_again_elsewhere_once() -> None:
    book = Book([Shard(("a", "b"), 2.0)])
    book.ended(begin(book, "one"), {"b": 1.0})
    assert book.next("one", ["cpu"], 0.0, ALL) is None
    second = begin(book, "two")
    assert (second.shard.tests, second.shard.is_second) == (("b",), True)

    book.ended(second, {"b": 1.0})

    assert book.is_done


def test_an_idle_worker_repeats_the_attempt_that_lags_and_the_first_to_end_counts() -> None:
    book = Book([Shard(("a",), 10.0), Shard(("b",), 10.0)])
    slow, steady = begin(book, "one"), begin(book, "two")
    book.saw(slow, done_s=0.1)
    book.saw(steady, done_s=9.0)
    copy = begin(book, "three", now=12.0)
    assert copy.shard is slow.shard

    assert book.ended(copy) == [slow]
    assert book.attempt(slow.number) is None
    assert book.running == (steady,)


def test_an_attempt_at_the_pace_of_the_others_is_not_repeated() -> None:
    book = Book([Shard(("a",), 10.0), Shard(("b",), 10.0)])
    first, second = begin(book, "one"), begin(book, "two", now=1.0)
    book.ended(first, now=81.0)  # eight times as long as expected, and a start
    book.saw(second, done_s=5.0)

    assert book.next("one", ["cpu"], 50.0) is None


def test_a_repeated_shard_that_loses_one_attempt_does_not_wait() -> None:
    book = Book([Shard(("a",), 10.0)])
    slow = begin(book, "one")
    copy = begin(book, "two", now=100.0)
    book.lost(copy)

    assert book.waiting_number == 0
    assert book.ended(slow) == []
    assert book.is_done


def test_what_waits_can_be_abandoned() -> None:
    book = Book([Shard(("a",), 1.0, "cuda")])
    book.abandon("no worker has a device of kind cuda")

    assert book.is_done
    assert book.given_up == {"a": "no worker has a device of kind cuda"}


def test_a_shard_waits_from_when_it_is_ready_until_a_worker_takes_it() -> None:
    book = Book([Shard(("a",), 1.0, ready_s=2.0)])
    first = begin(book, "one", now=5.0)
    book.lost(first, 7.0)
    second = begin(book, "two", now=10.0)
    book.ended(second, {"a": 1.0}, now=11.0)

    assert [first.waited_s, second.waited_s, begin(book, "three", now=15.5).waited_s] == [3.0, 3.0, 4.5]
