"""`digideep.testing.toy_ddpg` with a runner that acts."""

from __future__ import annotations

from acting_toys import acting

from digideep.testing import toy_ddpg

cpanel = toy_ddpg.cpanel
gen_params = acting(toy_ddpg.gen_params)
