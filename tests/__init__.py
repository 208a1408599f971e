"""Tests of fastsample; `support` has what they share."""

import pytest

pytest.register_assert_rewrite("tests.support")
