"""The tests that the checkers of every chapter's exercises pass; a chapter adds its right and wrong answers."""

import re
from collections.abc import Callable, Sequence
from types import ModuleType

import pytest
import torch

Checker = Callable[[Callable], None]


class Answers:
    """Right answers pass, wrong ones fail with their case, blank ones are reported, other errors are not hidden.

    A chapter's file derives a class from this one, with a name that pytest collects, and sets:

        chapter: the module of checkers.
        right: for each checker, answers that it accepts.
        wrong: for each checker, what is wrong with an answer, and the answer.
        reasons: (checker, what is wrong, part of the message), where the message is worth checking.
        complaint: what the message of every wrong answer looks like, a pattern in which {} is the exercise.
    """

    chapter: ModuleType
    right: dict[Checker, list[Callable]]
    wrong: dict[Checker, dict[str, Callable]]
    reasons: Sequence[tuple[Checker, str, str]] = ()
    complaint = "^{}.*(expected|should be)"

    def pytest_generate_tests(self, metafunc):
        if "says" in metafunc.fixturenames:
            cases = [pytest.param(*case, id=f"{case[0].__name__}: {case[1]}") for case in self.reasons]
            metafunc.parametrize("checker, mistake, says", cases)
        elif "mistake" in metafunc.fixturenames:
            cases = [pytest.param(checker, mistake, id=f"{checker.__name__}: {mistake}")
                     for checker, answers in self.wrong.items() for mistake in answers]
            metafunc.parametrize("checker, mistake", cases)
        elif "checker" in metafunc.fixturenames:
            metafunc.parametrize("checker", list(self.right), ids=lambda checker: checker.__name__)

    @pytest.fixture(autouse=True)
    def _seed(self):
        torch.manual_seed(0)

    def test_every_exercise_is_covered(self):
        exercises = set(self.chapter.__all__)
        assert {checker.__name__ for checker in self.right} == exercises
        assert {checker.__name__ for checker in self.wrong} == exercises
        assert all(self.right.values()) and all(len(answers) >= 2 for answers in self.wrong.values())

    def test_right_answer_is_accepted(self, checker, capsys):
        for answer in self.right[checker]:
            assert checker(answer) is None
            assert capsys.readouterr().out.startswith(f"{checker.__name__}: correct for ")

    def test_wrong_answer_is_rejected_and_its_case_named(self, checker, mistake, capsys):
        with pytest.raises(AssertionError, match=self.complaint.format(checker.__name__)) as error:
            checker(self.wrong[checker][mistake])
        numbers = re.search(r"(?:should be|expected) (\S+), given ([^\s;]+)", str(error.value))
        assert numbers is None or numbers[1] != numbers[2]
        assert capsys.readouterr().out == ""

    def test_the_reason_is_named(self, checker, mistake, says):
        with pytest.raises(AssertionError, match=re.escape(says)):
            checker(self.wrong[checker][mistake])

    def test_blank_answer_is_reported(self, checker, capsys):
        def blank(*args):
            raise NotImplementedError

        assert checker(blank) is None
        assert capsys.readouterr().out == f"{checker.__name__}: not answered yet\n"

    def test_an_error_inside_the_answer_is_not_hidden(self, checker):
        def unsupported(*args):
            raise NotImplementedError("no kernel for this dtype")

        with pytest.raises(NotImplementedError, match="no kernel"):
            checker(unsupported)

    def test_a_called_function_is_not_a_function(self, checker):
        name = checker.__name__
        with pytest.raises(TypeError, match=rf"give the function itself.*check.{name}\({name}\)"):
            checker(3)
