"""`digideep.testing.toy_ppo_recurrent` with a runner that acts."""

from __future__ import annotations

from acting_toys import acting

from digideep.testing import toy_ppo_recurrent

cpanel = toy_ppo_recurrent.cpanel
gen_params = acting(toy_ppo_recurrent.gen_params)
