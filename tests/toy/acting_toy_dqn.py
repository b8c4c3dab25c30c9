"""`digideep.testing.toy_dqn` with a runner that acts."""

from __future__ import annotations

from acting_toys import acting

from digideep.testing import toy_dqn

cpanel = toy_dqn.cpanel
gen_params = acting(toy_dqn.gen_params)
