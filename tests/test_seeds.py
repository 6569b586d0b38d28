"""Seeds that failed are kept, played again, and written once; fresh ones are the same for the same number."""

from pathlib import Path

import pytest

from seeds import FILE, fresh_seeds, keep, kept_seeds, name_of


def test_a_seed_that_failed_is_written_once_and_read_again(tmp_path: Path) -> None:
    file = tmp_path / "seeds.txt"
    file.write_text("# a remark\n")
    name = name_of("tests/a/test_b.py::test_c[swarm-7]")
    assert [keep(name, seed, file) for seed in (7, 8, 7)] == [True, True, False]
    assert file.read_text() == "# a remark\ntests/a/test_b.py::test_c 7\ntests/a/test_b.py::test_c 8\n"
    assert kept_seeds(file.read_text()) == {"tests/a/test_b.py::test_c": [7, 8]}


def test_a_line_that_names_no_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="write the name of a test and a seed"):
        kept_seeds("tests/a/test_b.py::test_c seven\n")


def test_fresh_worlds_differ_by_number_and_test_and_can_be_had_again() -> None:
    assert fresh_seeds(1, "a", 9) == fresh_seeds(1, "a", 9)
    assert len({*fresh_seeds(1, "a", 9), *fresh_seeds(2, "a", 9), *fresh_seeds(1, "b", 9)}) == 27


def test_every_test_that_a_kept_seed_names_is_there() -> None:
    for name in kept_seeds(FILE.read_text()):
        file, _, function = name.partition("::")
        assert f"def {function}(" in (FILE.parents[1] / file).read_text(), name


@pytest.mark.parametrize("seed", range(2))
def test_a_world_is_given_to_a_test_that_takes_one_of_a_range(seed: int) -> None:
    assert 0 <= seed < 2**32
