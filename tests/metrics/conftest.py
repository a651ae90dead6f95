"""Random cases."""

import pytest

from shared.metric_definitions import Case


@pytest.fixture(params=range(4))
def case(request):
    return Case(request.param)
