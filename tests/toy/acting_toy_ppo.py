"""`digideep.testing.toy_ppo` with a runner that acts."""

from __future__ import annotations

from acting_toys import acting

from digideep.testing import toy_ppo

cpanel = toy_ppo.cpanel
gen_params = acting(toy_ppo.gen_params)
