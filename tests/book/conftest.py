"""What the tests of the book's own package share."""

import pytest

pytest.register_assert_rewrite("exercise_answers")
