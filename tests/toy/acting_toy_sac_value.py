"""`digideep.testing.toy_sac_value` with a runner that acts."""

from __future__ import annotations

from acting_toys import acting

from digideep.testing import toy_sac_value

cpanel = toy_sac_value.cpanel
gen_params = acting(toy_sac_value.gen_params)
